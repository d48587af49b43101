// Many updates in one call are those updates, bit for bit.
#include <gtest/gtest.h>

#include <vector>

#include "ops/adamw_arrays.hpp"
#include "ops/expect_error.hpp"

namespace tigon::test {
namespace {

TEST(AdamwList, IsOneAfterTheOther) {
  for (const int threads : {1, 3}) {
    std::vector<AdamwArrays> together = adamw_arrays_of_every_kind(), alone = together;
    const Context ctx{.threads = threads};
    for (int64_t step = 1; step <= 3; ++step) {
      const std::vector<ops::Adamw> updates = updates_of(together, step);
      ops::adamw_list(ctx, {.updates = updates});
      for (const ops::Adamw& update : updates_of(alone, step)) ops::adamw({}, update);
    }
    for (size_t i = 0; i < together.size(); ++i) EXPECT_TRUE(together[i].bytes() == alone[i].bytes()) << i;
  }
}

TEST(AdamwList, MayBeLongOrEmpty) {
  ops::adamw_list({}, {});
  std::vector<AdamwArrays> many, alone;
  for (int64_t i = 0; i < 700; ++i) {
    many.push_back(AdamwArrays(1 + i % 5, DType::f32, DType::f32));
    many.back().fill(static_cast<uint64_t>(i));
  }
  alone = many;
  ops::adamw_list({}, {.updates = updates_of(many, 1)});
  for (const ops::Adamw& update : updates_of(alone, 1)) ops::adamw({}, update);
  for (size_t i = 0; i < many.size(); ++i) ASSERT_TRUE(many[i].bytes() == alone[i].bytes()) << i;
}

TEST(AdamwList, ABadOneIsFoundBeforeAnythingIsWritten) {
  std::vector<AdamwArrays> arrays = adamw_arrays_of_every_kind();
  const std::vector<AdamwArrays> untouched = arrays;
  std::vector<ops::Adamw> updates = updates_of(arrays, 1);
  updates.back().grad.sizes[0] += 1;
  expect_error([&] { ops::adamw_list({}, {.updates = updates}); }, ErrorCode::invalid_argument,
               "adamw_list: 'grad' has the wrong shape");
  updates = updates_of(arrays, 1);
  std::vector<double> wide(4, 1.0);
  const auto tensor = [&](int64_t i) { return Tensor::contiguous(&wide[static_cast<size_t>(i)], DType::f64, {1}); };
  updates.push_back({.param = tensor(0), .grad = tensor(1), .m = tensor(2), .v = tensor(3)});
  expect_error([&] { ops::adamw_list({}, {.updates = updates}); }, ErrorCode::invalid_argument, "f64 does not mix");
  for (size_t i = 0; i < arrays.size(); ++i) EXPECT_TRUE(arrays[i].bytes() == untouched[i].bytes());
}

}  // namespace
}  // namespace tigon::test
