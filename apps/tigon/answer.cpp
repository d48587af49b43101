#include "answer.hpp"

#include <algorithm>
#include <utility>

namespace tigon::app {

std::string Answer::finish() {
  std::string text = stopped_ ? "" : add(decoder_.finish());
  return stopped_ ? text : text + std::exchange(held_, "");
}

std::string Answer::add(const std::string& more) {
  held_ += more;
  size_t end = held_.size(), kept = held_.size();
  for (const std::string& stop : stops_) {
    if (const size_t at = held_.find(stop); at < end) {
      end = kept = at;
      stopped_ = true;
    }
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > 0 && !stopped_; --n) {
      if (held_.ends_with(stop.substr(0, n))) kept = std::min(kept, held_.size() - n);
    }
  }
  const std::string text = held_.substr(0, kept);
  held_.erase(0, kept);
  return text;
}

}  // namespace tigon::app
