#pragma once

#include <string>

#include "json/json.hpp"

namespace tigon::report {

// One HTML file that needs no other: the page in src/report/page, the chart library, and `data`, which its script
// draws.
std::string page_text(const std::string& title, const Json& data);

}  // namespace tigon::report
