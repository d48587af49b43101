#include "report/timeline_check.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "report/shape.hpp"
#include "tigon/core/error.hpp"

namespace tigon::report {

namespace {

constexpr int64_t kLargest = int64_t{1} << 53;  // what the page's numbers hold exactly
// The page keeps a level of each class for each event, and a line for each phase.
constexpr size_t kMostClasses = 64, kMostPhases = 1024;

const Json& timeline_shape() {
  static const Json shape = Json::parse(R"({
    "format": "", "version": 0, "unit": "", "step?": 0, "total_bytes": 0, "peak_bytes": 0,
    "classes": [""], "names": [""], "places": [""],
    "phases?": [{"name": "", "begin": 0, "end": 0}],
    "blocks": {"name": [0], "class": [0], "bytes": [0], "offset": [0], "birth": [0], "death": [0.5], "place": [0]}})",
                                        "the shape of memory.json");
  return shape;
}

[[noreturn]] void refuse(const std::string& where, std::string what) {
  throw Error(ErrorCode::invalid_argument, {.where = where, .what = std::move(what)});
}

}  // namespace

Json checked_timeline(const Json& value, const std::string& where) {
  Json timeline = shaped(value, timeline_shape(), where);
  if (timeline.find("format")->string(where) != "tigon-memory" || timeline.find("version")->integer(where) != 1) {
    refuse(where, "this is no tigon-memory of version 1");
  }
  const std::string& unit = timeline.find("unit")->string(where);
  if (unit != "ns" && unit != "events") refuse(where, "its unit is neither ns nor events");

  for (const auto& [name, most] : {std::pair{"classes", kMostClasses}, std::pair{"phases", kMostPhases}}) {
    const Json* list = timeline.find(name);
    if (list != nullptr && list->array(where).size() > most)
      refuse(where, fmt::format("it has more {} than {}", name, most));
  }

  const Json& blocks = *timeline.find("blocks");
  const auto column = [&](const char* name) -> const Json::Array& { return blocks.find(name)->array(where); };
  const Json::Array &births = column("birth"), &deaths = column("death");
  const auto check_column = [&](const char* name, int64_t below) {
    const Json::Array& values = column(name);
    if (values.size() != births.size()) refuse(where, fmt::format("'{}' is not as long as 'birth'", name));
    for (const Json& element : values) {
      if (element.integer(where) >= below) {
        refuse(where, fmt::format("'{}' has {}, and should have less than {}", name, element.integer(where), below));
      }
    }
  };
  const auto length = [&](const char* name) { return static_cast<int64_t>(timeline.find(name)->array(where).size()); };
  check_column("name", length("names"));
  check_column("class", length("classes"));
  check_column("place", length("places"));
  for (const char* name : {"bytes", "offset", "birth", "death"}) check_column(name, kLargest);
  for (size_t i = 0; i < births.size(); ++i) {
    const int64_t birth = births[i].integer(where), death = deaths[i].integer(where);
    if (death != -1 && death < birth) refuse(where, fmt::format("block {} dies before its birth", i));
  }
  return timeline;
}

}  // namespace tigon::report
