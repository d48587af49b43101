#include "tigon/core/half.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tigon/core/philox.hpp"

namespace tigon::test {
namespace {

// The nearest value of a 16-bit type by search over its neighbours, ties to even: slow and obviously right.
template <class T>
uint16_t nearest_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  uint16_t low = 0, high = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;  // infinity
  const auto decode = [](uint16_t bits) {
    T t;
    t.bits = bits;
    return static_cast<double>(t);
  };
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (decode(middle) <= magnitude ? low : high) = middle;
  }
  const double below = decode(low);
  // Beyond the largest finite value the next step would have been as large as the last one.
  const double above =
      std::isinf(decode(high)) ? below + (below - decode(static_cast<uint16_t>(low - 1))) : decode(high);
  const double to_low = magnitude - below, to_high = above - magnitude;
  const uint16_t chosen = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
  return static_cast<uint16_t>(sign | chosen);
}

template <class T>
class Half : public testing::Test {};
using Types = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(Half, Types);

TYPED_TEST(Half, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    TypeParam value;
    value.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(wide))));
    } else {
      ASSERT_EQ(TypeParam(wide).bits, bits);
      ASSERT_EQ(TypeParam(static_cast<double>(wide)).bits, bits);
    }
  }
}

TYPED_TEST(Half, RoundsToNearestEvenFromFloatAndDouble) {
  const RandomStream random{.seed = 3};
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(random.bits(i));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(TypeParam(value).bits, nearest_bits<TypeParam>(value)) << value;
    // Just beside a tie, where rounding first to f32 and then to 16 bits would go wrong.
    TypeParam low(value);
    if (!std::isfinite(static_cast<float>(low))) continue;
    TypeParam high = low;
    high.bits = static_cast<uint16_t>(low.bits + 1);
    const double tie = (static_cast<double>(low) + static_cast<double>(high)) / 2;
    if (!std::isfinite(tie)) continue;
    for (const double near : {tie, std::nextafter(tie, 1e300), std::nextafter(tie, -1e300)}) {
      ASSERT_EQ(TypeParam(near).bits, nearest_bits<TypeParam>(near)) << near;
    }
  }
}

}  // namespace
}  // namespace tigon::test
