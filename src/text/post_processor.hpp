#pragma once

#include <cstdint>
#include <vector>

#include "text/fields.hpp"

namespace tigon {

// The special tokens around a text.
struct PostProcessor {
  PostProcessor() = default;
  explicit PostProcessor(const Field& field) { add(field); }

  std::vector<int32_t> before, after;

 private:
  void add(const Field& field);
  void add_template(const Field& field);
};

}  // namespace tigon
