// Tensors of more than 2^31 elements on a GPU. They repeat one small block of rows, so that the last rows must come out
// as the rows of a tensor that holds this block alone, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "gpu/gpu_fixture.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/half.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/ops/cross_entropy.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/rmsnorm.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/softmax.hpp"
#include "tigon/ops/swiglu.hpp"

namespace tigon::test {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int64_t kBlock = 8;  // rows
constexpr int64_t kHidden = 4096;
constexpr int64_t kVocab = 49152;  // rows that one thread block does not hold

// Whole blocks, and a little over 2^31 elements.
constexpr int64_t rows_of(int64_t columns) { return ((int64_t{1} << 31) / columns / kBlock + 1) * kBlock; }

// The block alone, and the tensor that repeats it.
struct Twins {
  OwnedTensor small, large;
};

class GpuLarge : public GpuTest {
 protected:
  Context ctx() { return {.device = kGpu, .memory = &memory_}; }

  OwnedTensor make(DType dtype, std::vector<int64_t> sizes) {
    OwnedTensor t(ctx(), "tensor", dtype, sizes, MemoryClass::other);
    device_fill(ctx(), t.view.data, 0xff, t.view.bytes());  // NaN
    return t;
  }
  template <class T>
  void upload(const Tensor& t, const std::vector<T>& values) {
    device_copy(ctx(), t.data, values.data(), t.bytes());
    synchronize(ctx());
  }
  OwnedTensor random(std::vector<int64_t> sizes) {
    OwnedTensor t = make(DType::bf16, std::move(sizes));
    std::vector<bf16> values(static_cast<size_t>(t.view.elements()));
    const RandomStream random{.seed = 3, .tensor = next_++};
    for (size_t i = 0; i < values.size(); ++i) values[i] = bf16(random.normal(i));
    upload(t, values);
    return t;
  }

  // `row` is the shape of a row: empty for one value.
  Twins results(DType dtype, int64_t rows, std::vector<int64_t> row) {
    row.insert(row.begin(), kBlock);
    OwnedTensor small = make(dtype, row);
    row[0] = rows;
    return {std::move(small), make(dtype, row)};
  }
  Twins repeated(OwnedTensor block, int64_t rows) {
    std::vector<int64_t> sizes(block.view.sizes, block.view.sizes + block.view.rank);
    sizes[0] = rows;
    OwnedTensor large = make(block.view.dtype, sizes);
    Twins twins{std::move(block), std::move(large)};
    auto* to = static_cast<std::byte*>(twins.large.view.data);
    int64_t done = twins.small.view.bytes();
    device_copy(ctx(), to, twins.small.view.data, done);
    for (const int64_t all = twins.large.view.bytes(); done < all; done = std::min(all, 2 * done)) {
      device_copy(ctx(), to + done, to, std::min(done, all - done));
    }
    return twins;
  }
  // The numbers 0, step, 2·step, …
  Twins indices(int64_t rows, int64_t step) {
    OwnedTensor block = make(DType::i64, {kBlock});
    std::vector<int64_t> values;
    for (int64_t i = 0; i < kBlock; ++i) values.push_back(i * step);
    upload(block, values);
    return repeated(std::move(block), rows);
  }

  void compare(const char* what, const Twins& twins) {
    const auto bytes = static_cast<size_t>(twins.small.view.bytes());
    std::vector<std::byte> small(bytes), last(bytes);
    const auto* end = static_cast<const std::byte*>(twins.large.view.data) + twins.large.view.bytes();
    device_copy(ctx(), small.data(), twins.small.view.data, static_cast<int64_t>(bytes));
    device_copy(ctx(), last.data(), end - bytes, static_cast<int64_t>(bytes));
    synchronize(ctx());
    EXPECT_NE(small, std::vector<std::byte>(bytes, std::byte{0xff})) << what << " was not written";
    EXPECT_TRUE(small == last) << what;
  }

  // The body for the small tensors, then for the large ones; skips where the GPU has no room.
  using Pick = std::function<Tensor(const Twins&)>;
  static void both(const std::function<void(const Pick&)>& body) {
    body([](const Twins& twins) { return twins.small.view; });
    body([](const Twins& twins) { return twins.large.view; });
  }
  static void where_it_fits(const std::function<void()>& test) {
    try {
      test();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      GTEST_SKIP() << error.what();
    }
  }

 private:
  DeviceArena memory_{kGpu};
  uint32_t next_ = 0;
};

TEST_F(GpuLarge, Norms) {
  where_it_fits([&] {
    constexpr int64_t kRows = rows_of(kHidden);
    const Twins x = repeated(random({kBlock, kHidden}), kRows), dy = repeated(random({kBlock, kHidden}), kRows);
    const Twins y = results(DType::bf16, kRows, {kHidden}), dx = results(DType::bf16, kRows, {kHidden});
    const Twins mean = results(DType::f32, kRows, {}), rstd = results(DType::f32, kRows, {});
    const OwnedTensor weight = random({kHidden}), bias = random({kHidden}), dweight = random({kHidden});
    both([&](const Pick& of) {
      ops::rmsnorm_forward(ctx(), {.x = of(x), .weight = weight, .y = of(y), .rstd = of(rstd)});
      ops::rmsnorm_backward(
          ctx(), {.dy = of(dy), .x = of(x), .weight = weight, .rstd = of(rstd), .dx = of(dx), .dweight = dweight});
    });
    compare("rmsnorm y", y);
    compare("rmsnorm rstd", rstd);
    compare("rmsnorm dx", dx);
    both([&](const Pick& of) {
      ops::layernorm_forward(
          ctx(), {.x = of(x), .weight = weight, .bias = bias, .y = of(y), .mean = of(mean), .rstd = of(rstd)});
    });
    compare("layernorm y", y);
    compare("layernorm mean", mean);
  });
}

TEST_F(GpuLarge, Swiglu) {
  where_it_fits([&] {
    constexpr int64_t kRows = rows_of(kHidden);
    const Twins a = repeated(random({kBlock, kHidden}), kRows), b = repeated(random({kBlock, kHidden}), kRows);
    const Twins dc = repeated(random({kBlock, kHidden}), kRows), c = results(DType::bf16, kRows, {kHidden});
    const Twins da = results(DType::bf16, kRows, {kHidden}), db = results(DType::bf16, kRows, {kHidden});
    both([&](const Pick& of) {
      ops::swiglu_forward(ctx(), {.a = of(a), .b = of(b), .c = of(c)});
      ops::swiglu_backward(ctx(), {.dc = of(dc), .a = of(a), .b = of(b), .da = of(da), .db = of(db)});
    });
    compare("c", c);
    compare("da", da);
    compare("db", db);
  });
}

TEST_F(GpuLarge, SoftmaxAndCrossEntropyInPlace) {
  where_it_fits([&] {
    constexpr int64_t kRows = rows_of(kVocab);
    const Twins logits = repeated(random({kBlock, kVocab}), kRows), y = results(DType::bf16, kRows, {kVocab});
    const Twins target = indices(kRows, kVocab / kBlock), lse = results(DType::f32, kRows, {});
    const OwnedTensor loss = make(DType::f32, {1});
    both([&](const Pick& of) {
      ops::softmax_forward(ctx(), {.x = of(logits), .y = of(y)});
      ops::cross_entropy_forward(ctx(), {.logits = of(logits),
                                         .target = of(target),
                                         .options = {.reduction = ops::Reduction::sum},
                                         .out = {.loss = loss, .lse = of(lse)},
                                         .dlogits = of(logits)});
    });
    compare("softmax", y);
    compare("lse", lse);
    compare("dlogits", logits);
  });
}

TEST_F(GpuLarge, UnaryAndRope) {
  where_it_fits([&] {
    constexpr int64_t kRows = rows_of(kHidden);
    const Twins x = repeated(random({kBlock, kHidden / 128, 128}), kRows);
    const Twins y = results(DType::bf16, kRows, {kHidden / 128, 128}), positions = indices(kRows, 5);
    both([&](const Pick& of) { ops::unary(ctx(), {.op = ops::UnaryOp::silu, .x = of(x), .y = of(y)}); });
    compare("silu", y);
    both([&](const Pick& of) { ops::rope_forward(ctx(), {.q = of(x), .q_out = of(y), .positions = of(positions)}); });
    compare("rope", y);
  });
}

TEST_F(GpuLarge, Embedding) {
  where_it_fits([&] {
    constexpr int64_t kRows = rows_of(kHidden);
    const Twins weight = repeated(random({kBlock, kHidden}), kRows), y = results(DType::bf16, kRows, {kHidden});
    const Twins ids = indices(kRows, 1);
    // Many tokens from a small table.
    both([&](const Pick& of) { ops::embedding_forward(ctx(), {.ids = of(ids), .weight = weight.small, .y = of(y)}); });
    compare("tokens", y);
    // A few tokens from the end of a large one.
    const OwnedTensor last = make(DType::i64, {kBlock});
    std::vector<int64_t> values;
    for (int64_t i = 0; i < kBlock; ++i) values.push_back(kRows - kBlock + i);
    upload(last, values);
    ops::embedding_forward(ctx(), {.ids = last, .weight = weight.large, .y = y.small});
    compare("table", y);
  });
}

}  // namespace
}  // namespace tigon::test
