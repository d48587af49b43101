#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tigon/train/planner.hpp"

namespace tigon::report {

// What a page shows, in words.
struct Summary {
  std::vector<std::string> headline;  // what the study shows
  std::vector<std::string> notes;     // what is missing, or was left out
  int64_t points = 0, finished = 0;
};

// Reads a study's folder and writes its page, one HTML file that needs no other; it appears whole or not at all. Error
// where the folder is no study; what is missing or broken in one that is stands on the page, and in the notes.
Summary write_report(const std::filesystem::path& folder, const std::filesystem::path& file);

struct PlannedModel {
  std::string name;
  ModelConfig config;
  const ParameterList& parameters;
  std::string device{};
};
struct PlannedRun {
  std::string name;   // "unfused"
  std::string title;  // "Without fused kernels"
  std::string command{};
  MemoryPlan plan;
};

// The memory part of such a page before any run: the first run is the one that was asked for, the others stand beside
// it. `cap` is the device's limit, 0: none; `notes` are sentences to know.
void write_plan_page(const std::filesystem::path& file, const PlannedModel& model, const std::vector<PlannedRun>& runs,
                     int64_t cap, const std::vector<std::string>& notes);

}  // namespace tigon::report
