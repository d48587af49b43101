#pragma once

#include <fmt/format.h>

#include "tigon/core/error.hpp"

namespace tigon {

// Throws Error naming the setting unless low <= value <= high; NaN never is.
inline void check_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorCode::invalid_argument, {.where = name,
                                            .what = "the value is out of range",
                                            .expected = fmt::format("{} to {}", low, high),
                                            .got = fmt::format("{}", value)});
}

// An ignore index stands among the labels, which are i32.
inline void check_ignore_index(int64_t index) {
  check_range("ignore index", static_cast<double>(index), INT32_MIN, INT32_MAX);
}

}  // namespace tigon
