#pragma once

#include <cstdint>
#include <string>

namespace tigon {

// "24GiB", "24 gib", "24G", which is the same, "512MB", "1000000". human_bytes (ledger.hpp) is the way back.
int64_t bytes_from_string(const std::string& text);

}  // namespace tigon
