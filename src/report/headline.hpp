#pragma once

#include <string>
#include <vector>

#include "report/study_folder.hpp"

namespace tigon::report {

// What a study shows, in a few sentences; the first is its most telling one. Empty where nothing was measured.
std::vector<std::string> headline(const StudyFolder& study);

}  // namespace tigon::report
