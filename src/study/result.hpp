#pragma once

#include <filesystem>
#include <optional>

#include "json/json.hpp"
#include "tigon/study/study.hpp"

namespace tigon {

// What `tigon train` has written of a point: its steps' log. Error where it is not what a whole run writes.
void read_measured(const std::filesystem::path& log, const Study& study, PointResult& result);

// point.json, and back; nothing where the file is not there, is damaged, or is of another command.
Json point_json(const PointResult& result, const PlannedPoint& planned);
std::optional<PointResult> kept_result(const std::filesystem::path& file, const StudyPoint& point,
                                       const std::string& command);

// All points so far, a row each.
std::string results_csv(const Study& study, const std::vector<PointResult>& results);
Json results_json(const Study& study, const std::vector<PointResult>& results);

}  // namespace tigon
