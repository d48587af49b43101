#pragma once

#include <string>

#include "json/json.hpp"

namespace tigon::report {

// A memory.json as the page draws it; Error where it has another shape, or columns that do not fit each other.
Json checked_timeline(const Json& value, const std::string& where);

}  // namespace tigon::report
