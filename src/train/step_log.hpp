#pragma once

#include <filesystem>
#include <fstream>

#include "json/json.hpp"

namespace tigon {

// JSON lines, each flushed, so that a log is whole up to its last line whatever happens.
class StepLog {
 public:
  // Without a path there is no log. Error where the file holds anything but a log, which would be lost.
  StepLog(const std::filesystem::path& path, bool append);
  // False when a line is lost, once: nothing more is written then. A run is worth more than its log.
  bool write(const Json& line);

 private:
  std::ofstream file_;
};

}  // namespace tigon
