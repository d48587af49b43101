#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/fields.hpp"

namespace tigon {

// What a text goes through before it is cut: a row of small changes.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const Field& field);

  bool empty() const noexcept { return steps_.empty(); }
  bool prepends() const noexcept { return prepends_; }
  std::string apply(std::string_view text) const;

 private:
  struct Step {
    enum class Kind { nfc, replace, prepend };
    Kind kind;
    std::string pattern = {}, content = {};
  };
  void add(const Field& field);

  std::vector<Step> steps_;
  bool prepends_ = false;
};

// The plain text of {"String": …}; a regular expression is refused.
const std::string& plain_pattern(const Field& field);

}  // namespace tigon
