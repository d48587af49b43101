// Products that sum over very many terms, as the loss's gradient does over a vocabulary. A library may cut such sums
// into pieces: no term may be lost. One term of each row is not zero, so that the result is a row of the weight.
#include <gtest/gtest.h>

#include <vector>

#include "gpu/gpu_fixture.hpp"
#include "tigon/core/half.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon::test {
namespace {

constexpr int64_t kColumns = 64;

class GpuLongSums : public GpuTest {};

template <class T>
void check(DType dtype, int64_t terms, int64_t rows) {
  constexpr Device device{DeviceKind::cuda, 0};
  DeviceArena memory(device);
  const Context ctx{.device = device, .memory = &memory};
  const auto make = [&](std::initializer_list<int64_t> sizes) {
    return OwnedTensor(ctx, "tensor", dtype, sizes, MemoryClass::other);
  };
  const OwnedTensor dy = make({rows, terms}), weight = make({terms, kColumns}), dx = make({rows, kColumns});
  const RandomStream random{.seed = 4, .tensor = 0};
  std::vector<T> of_weight(static_cast<size_t>(terms * kColumns));
  for (size_t i = 0; i < of_weight.size(); ++i) of_weight[i] = T(static_cast<float>(i * 2654435761u % 255) - 127.0f);
  device_copy(ctx, weight.view.data, of_weight.data(), weight.view.bytes());
  // The last terms, and some from everywhere.
  for (int64_t round = 0; round < 3; ++round) {
    std::vector<T> of_dy(static_cast<size_t>(rows * terms), T(0.0f)), result(static_cast<size_t>(rows * kColumns));
    std::vector<int64_t> at;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t back = round * rows + row;
      at.push_back(round < 2 ? terms - 1 - back * (1 + 37 * round)
                             : static_cast<int64_t>(random.bits(static_cast<uint64_t>(back)) % terms));
      of_dy[static_cast<size_t>(row * terms + at.back())] = T(1.0f);
    }
    device_copy(ctx, dy.view.data, of_dy.data(), dy.view.bytes());
    ops::linear_backward(ctx, {.dy = dy, .weight = weight, .dx = dx});
    device_copy(ctx, result.data(), dx.view.data, dx.view.bytes());
    synchronize(ctx);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const auto got = static_cast<float>(result[static_cast<size_t>(row * kColumns + j)]);
        const auto want =
            static_cast<float>(of_weight[static_cast<size_t>(at[static_cast<size_t>(row)] * kColumns + j)]);
        ASSERT_EQ(got, want) << to_string(dtype) << ": term " << at[static_cast<size_t>(row)] << " of " << terms
                             << ", row " << row << " of " << rows;
      }
    }
  }
}

TEST_F(GpuLongSums, LoseNoTerm) {
  for (const int64_t terms : {128256, 131072, 151936, 255992, 256000, 300032}) {
    for (const int64_t rows : {1, 2, 16, 70}) {
      check<bf16>(DType::bf16, terms, rows);
      check<f16>(DType::f16, terms, rows);
      check<float>(DType::f32, terms, rows);
    }
  }
}

}  // namespace
}  // namespace tigon::test
