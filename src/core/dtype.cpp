#include "tigon/core/dtype.hpp"

#include <array>
#include <string>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {
constexpr std::array<std::string_view, kDTypeCount> kNames = {"f32", "bf16", "f16", "f64", "i32", "i64", "u8"};
}

std::string_view to_string(DType dtype) noexcept {
  return is_known(dtype) ? kNames[static_cast<size_t>(dtype)] : std::string_view("unknown dtype");
}

DType dtype_from_string(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<DType>(i);
  }
  throw Error(ErrorCode::invalid_argument, {.where = "dtype",
                                            .what = "there is no such type",
                                            .expected = "one of f32, bf16, f16, f64, i32, i64, u8",
                                            .got = "'" + std::string(text) + "'"});
}

}  // namespace tigon
