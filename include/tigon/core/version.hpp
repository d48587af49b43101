#pragma once

namespace tigon {

// "0.1.0", from the project's CMakeLists.txt.
const char* version() noexcept;

}  // namespace tigon
