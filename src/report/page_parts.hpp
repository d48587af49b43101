#pragma once

#include <string_view>

namespace tigon::report {

// The files of src/report/page and the chart library, as embed.cmake has put them into this program.
extern const std::string_view page_html, page_style, page_script, page_library, page_licence;

}  // namespace tigon::report
