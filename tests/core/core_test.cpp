#include <gtest/gtest.h>

#include <cmath>

#include "ops/expect_error.hpp"
#include "tigon/core/context.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/core/version.hpp"

namespace tigon::test {
namespace {

TEST(Philox, MatchesThePublishedVectors) {
  // Known answers of Philox4x32-10 from the authors' Random123 distribution.
  EXPECT_EQ(Philox::block({0, 0, 0, 0}, 0), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::block({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalNumbersAreNormal) {
  const RandomStream random{.seed = 1, .step = 2, .tensor = 3};
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = random.normal(i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
}

TEST(Philox, StreamsDiffer) {
  const RandomStream a{.seed = 1, .step = 1, .tensor = 1};
  for (const RandomStream b : {RandomStream{2, 1, 1}, RandomStream{1, 2, 1}, RandomStream{1, 1, 2}}) {
    int equal = 0;
    for (uint64_t i = 0; i < 100; ++i) equal += a.bits(i) == b.bits(i);
    EXPECT_LE(equal, 1);
  }
}

TEST(Tensor, SlicesAndTransposesShareMemory) {
  float data[24] = {};
  const Tensor t = Tensor::contiguous(data, DType::f32, {2, 3, 4});
  EXPECT_EQ(t.elements(), 24);
  EXPECT_EQ(t.bytes(), 96);
  EXPECT_TRUE(t.is_contiguous());
  const Tensor part = t.slice(1, 1, 3);
  EXPECT_EQ(part.data, data + 4);
  EXPECT_EQ(shape_string(part), "[2, 2, 4]");
  EXPECT_FALSE(part.is_contiguous());
  EXPECT_EQ(t.transpose(0, 2).strides[0], 1);
  EXPECT_EQ(shape_string(t.reshape({6, 4})), "[6, 4]");
  EXPECT_EQ(shape_string(Tensor{}), "absent");
  expect_error([&] { (void)t.slice(1, 2, 4); }, ErrorCode::invalid_argument, "leaves the tensor");
  expect_error([&] { (void)part.reshape({16}); }, ErrorCode::invalid_argument, "cannot view");
  expect_error(
      [&] {
        (void)Tensor::contiguous(data, DType::f32, {1, 1, 1, 1, 1});
      },
      ErrorCode::invalid_argument, "too many dimensions");
}

TEST(Tensor, WithoutElementsItHasNoGaps) {
  for (const auto& sizes : {std::vector<int64_t>{4, 0}, {0, 4}, {2, 3, 0}, {2, 0, 3}}) {
    EXPECT_TRUE(Tensor::contiguous(nullptr, DType::f32, sizes).is_contiguous()) << shape_string(sizes);
  }
  EXPECT_EQ(shape_string(Tensor::contiguous(nullptr, DType::f32, {4, 0}).reshape({0})), "[0]");
}

TEST(Tensor, SizesThatOverflowAreRefused) {
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  expect_error([&] { (void)checked_bytes("test", DType::f32, huge); }, ErrorCode::invalid_argument, "overflows");
  expect_error([&] { (void)Tensor::contiguous(nullptr, DType::f32, huge); }, ErrorCode::invalid_argument, "overflows");
  std::byte data[8];
  const Tensor t = Tensor::contiguous(data, DType::u8, {8});
  expect_error([&] { (void)t.reshape({-2, -4}); }, ErrorCode::invalid_argument, "[-2, -4] is negative");
}

TEST(Names, AreReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
    EXPECT_GT(size_of(dtype), 0);
  }
  expect_error([] { (void)dtype_from_string("fp7"); }, ErrorCode::invalid_argument, "'fp7'");
  EXPECT_EQ(device_from_string("cuda:3"), (Device{DeviceKind::cuda, 3}));
  EXPECT_EQ(to_string(device_from_string("cuda")), "cuda:0");
  EXPECT_EQ(to_string(device_from_string("cpu")), "cpu");
  for (const char* bad : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"}) {
    expect_error([&] { (void)device_from_string(bad); }, ErrorCode::invalid_argument, "cpu, cuda or cuda:N");
  }
  EXPECT_STREQ(version(), TIGON_VERSION);
}

TEST(Error, SaysWhereWhatExpectedGotAndFix) {
  const Error error(ErrorCode::io,
                    {.where = "load", .what = "bad file", .expected = "8 bytes", .got = "7", .fix = "Copy it again."});
  EXPECT_STREQ(error.what(), "load: bad file; expected 8 bytes, got 7. Copy it again.");
}

TEST(Context, WithoutMemoryTheNeedIsNamed) {
  const Context ctx;
  EXPECT_EQ(ctx.scratch("nothing", 0).data(), nullptr);
  expect_error([&] { (void)ctx.scratch("partials", 64); }, ErrorCode::invalid_argument, "64 bytes of scratch");
}

}  // namespace
}  // namespace tigon::test
