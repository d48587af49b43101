#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace tigon::report {

// A study as its folder has it, every file checked (docs/study.md says what is in them). A point is its point.json with
// what else the folder has of it: "memory", "times", "files" (names to link to). One that is not there, or that is
// broken, has the status "missing".
struct StudyFolder {
  Json study;                      // study.json, or what can be said without it
  Json::Array points;              // in the study's order
  Json::Array kernels;             // empty: not measured
  std::vector<std::string> notes;  // what is missing or was left out, a sentence each
};

// Error where the folder is no study at all: it has neither a study.json nor a point.
StudyFolder read_study(const std::filesystem::path& folder);

// Two points of the same batch and sequence, the one with the most bytes and the one with the least; the largest such
// two, where possible of strategies that differ in nothing but what is fused. `bytes` is negative for points that do
// not count. Both are the same where there are no two; null where there is none.
std::pair<const Json*, const Json*> telling_pair(const StudyFolder& study,
                                                 const std::function<int64_t(const Json& point)>& bytes);

}  // namespace tigon::report
