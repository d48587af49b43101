#include "report/page.hpp"

#include <string_view>

#include "report/page_parts.hpp"

namespace tigon::report {

namespace {

std::string escaped_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<': escaped += "&lt;"; break;
      case '&': escaped += "&amp;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

// In JSON a '<' stands in texts alone. Written as a number, none of it can end the script that it stands in.
std::string escaped_json(const Json& data) {
  std::string escaped;
  for (const char c : data.dump(false)) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string page_text(const std::string& title, const Json& data) {
  std::string text;
  std::string_view rest = page_html;
  // What stands for a part is "{{name}}"; parts are not looked through again.
  while (true) {
    const size_t open = rest.find("{{"), close = rest.find("}}", open);
    if (close == std::string_view::npos) return text += rest;
    text += rest.substr(0, open);
    const std::string_view name = rest.substr(open + 2, close - open - 2);
    if (name == "title") text += escaped_text(title);
    if (name == "style") text += page_style;
    if (name == "library") text += page_library;
    if (name == "licence") text += escaped_text(std::string(page_licence));
    if (name == "data") text += escaped_json(data);
    if (name == "script") text += page_script;
    rest = rest.substr(close + 2);
  }
}

}  // namespace tigon::report
