#pragma once

#include <span>
#include <string>
#include <vector>

#include "model_text.hpp"

namespace tigon::app {

// What follows a prompt, token by token: as much of it as is certain not to be the beginning of a stop.
class Answer {
 public:
  Answer(const ModelText& words, std::span<const int32_t> prompt, const std::vector<std::string>& stops)
      : decoder_(words, prompt), stops_(stops) {}

  // What can be shown now; nothing follows after a stop.
  std::string push(int32_t token) { return add(decoder_.push(token)); }
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string add(const std::string& more);

  ModelText::Behind decoder_;
  const std::vector<std::string>& stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tigon::app
