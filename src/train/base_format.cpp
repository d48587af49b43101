#include "tigon/train/base_format.hpp"

#include "tigon/core/error.hpp"
#include "tigon/ops/nf4.hpp"

namespace tigon {

namespace {

constexpr std::string_view kNames[] = {"full", "nf4"};

}  // namespace

BaseFormat base_from_string(std::string_view text) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == text) return static_cast<BaseFormat>(i);
  }
  throw Error(ErrorCode::invalid_argument, {.where = "--base",
                                            .what = "there is no such format",
                                            .expected = "full or nf4",
                                            .got = "'" + std::string(text) + "'"});
}

std::string_view to_string(BaseFormat base) noexcept { return kNames[static_cast<size_t>(base)]; }

std::vector<std::string> base_names() { return {std::begin(kNames), std::end(kNames)}; }

int64_t nf4_bytes(const Parameter& parameter) {
  int64_t bytes = 0;
  for (const ParameterPart& part : parameter.parts) {
    const int64_t n = parameter.elements_of(part);
    bytes += n / 2 + n % 2 + ops::nf4_blocks(n) + 4 * ops::nf4_groups(n) + 4;
  }
  return bytes;
}

}  // namespace tigon
