#include "tigon/ops/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/core/half.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

std::vector<float> normals(int64_t n, uint32_t id) {
  std::vector<float> values(static_cast<size_t>(n));
  const RandomStream random{.seed = 3, .tensor = id};
  for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
  return values;
}

struct AttentionFixture : testing::Test {
  static constexpr int64_t kSeq = 6, kHeads = 4, kKv = 2, kDim = 8;
  HeapArena heap;
  Context ctx{.memory = &heap};
  std::vector<float> q = normals(kSeq * kHeads * kDim, 0), k = normals(kSeq * kKv * kDim, 1),
                     v = normals(kSeq * kKv * kDim, 2), dout = normals(kSeq * kHeads * kDim, 3);
  std::vector<float> o = std::vector<float>(q.size(), -1.0f), lse = std::vector<float>(kSeq * kHeads, -1.0f);
  std::vector<float> dq = o, dk = std::vector<float>(k.size(), -1.0f), dv = dk;

  Tensor view(std::vector<float>& data, int64_t heads) {
    return Tensor::contiguous(data.data(), DType::f32, {1, kSeq, heads, kDim});
  }
  ops::AttentionForward forward{.q = view(q, kHeads),
                                .k = view(k, kKv),
                                .v = view(v, kKv),
                                .o = view(o, kHeads),
                                .lse = Tensor::contiguous(lse.data(), DType::f32, {1, kHeads, kSeq})};
  ops::AttentionBackward backward{.dout = view(dout, kHeads),
                                  .q = forward.q,
                                  .k = forward.k,
                                  .v = forward.v,
                                  .o = forward.o,
                                  .lse = forward.lse,
                                  .dq = view(dq, kHeads),
                                  .dk = view(dk, kKv),
                                  .dv = view(dv, kKv)};
};

TEST_F(AttentionFixture, TheFirstQuerySeesOnlyTheFirstKey) {
  ops::attention_forward(ctx, forward);
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t d = 0; d < kDim; ++d)
      EXPECT_FLOAT_EQ(o[static_cast<size_t>(h * kDim + d)], v[static_cast<size_t>(h / 2 * kDim + d)]);
  }
}

TEST(Attention, ScoresOfMinusInfinityCountNothingAlsoInABlockOfTheirOwn) {
  // q·k overflows to -inf for the first 150 of 200 keys: more than one block of them.
  constexpr int64_t kSeq = 200, kHidden = 150;
  HeapArena heap;
  const Context ctx{.memory = &heap};
  std::vector<float> q(kSeq, 1e20f), k(kSeq), v(kSeq), o(kSeq), lse(kSeq), dout(kSeq, 1.0f), dq(kSeq), dk(kSeq),
      dv(kSeq);
  for (int64_t i = 0; i < kSeq; ++i) {
    k[static_cast<size_t>(i)] = i < kHidden ? -1e20f : 0.0f;
    v[static_cast<size_t>(i)] = static_cast<float>(i);
  }
  const auto view = [](std::vector<float>& data) {
    return Tensor::contiguous(data.data(), DType::f32, {1, kSeq, 1, 1});
  };
  const Tensor saved = Tensor::contiguous(lse.data(), DType::f32, {1, 1, kSeq});
  ops::attention_forward(ctx, {.q = view(q), .k = view(k), .v = view(v), .o = view(o), .lse = saved, .causal = false});
  for (const float value : o) EXPECT_NEAR(value, 174.5f, 1e-3f);
  EXPECT_NEAR(lse[0], std::log(50.0f), 1e-5f);
  ops::attention_backward(ctx, {.dout = view(dout),
                                .q = view(q),
                                .k = view(k),
                                .v = view(v),
                                .o = view(o),
                                .lse = saved,
                                .dq = view(dq),
                                .dk = view(dk),
                                .dv = view(dv),
                                .causal = false});
  EXPECT_EQ(dv[0], 0.0f);
  EXPECT_NEAR(dv[199], 4.0f, 1e-4f);
}

TEST_F(AttentionFixture, LaterKeysDoNotReachEarlierQueries) {
  ops::attention_forward(ctx, forward);
  const std::vector<float> before = o;
  for (size_t i = 4 * kKv * kDim; i < k.size(); ++i) k[i] = v[i] = 100.0f;
  ops::attention_forward(ctx, forward);
  const size_t unchanged = 4 * kHeads * kDim;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + unchanged, o.begin()));
  EXPECT_NE(before, o);
}

TEST_F(AttentionFixture, HeadsOfOnePackedBufferGiveTheSameBits) {
  ops::attention_forward(ctx, forward);
  ops::attention_backward(ctx, backward);
  constexpr int64_t kWidth = (kHeads + 2 * kKv) * kDim;
  std::vector<float> packed(kSeq * kWidth), gradient(kSeq * kWidth, -1.0f), out(o.size());
  const auto part = [&](std::vector<float>& buffer, int64_t first_head, int64_t heads) {
    Tensor t = Tensor::contiguous(buffer.data() + first_head * kDim, DType::f32, {1, kSeq, heads, kDim});
    t.strides[1] = kWidth;
    t.strides[0] = kWidth * kSeq;
    return t;
  };
  for (int64_t i = 0; i < kSeq; ++i) {
    const auto to = packed.begin() + i * kWidth;
    std::copy_n(q.begin() + i * kHeads * kDim, kHeads * kDim, to);
    std::copy_n(k.begin() + i * kKv * kDim, kKv * kDim, to + kHeads * kDim);
    std::copy_n(v.begin() + i * kKv * kDim, kKv * kDim, to + (kHeads + kKv) * kDim);
  }
  forward.q = backward.q = part(packed, 0, kHeads);
  forward.k = backward.k = part(packed, kHeads, kKv);
  forward.v = backward.v = part(packed, kHeads + kKv, kKv);
  forward.o = backward.o = view(out, kHeads);
  backward.dq = part(gradient, 0, kHeads);
  backward.dk = part(gradient, kHeads, kKv);
  backward.dv = part(gradient, kHeads + kKv, kKv);
  ops::attention_forward(ctx, forward);
  ops::attention_backward(ctx, backward);
  EXPECT_EQ(out, o);
  for (int64_t i = 0; i < kSeq; ++i) {
    const auto from = gradient.begin() + i * kWidth;
    EXPECT_TRUE(std::equal(from, from + kHeads * kDim, dq.begin() + i * kHeads * kDim));
    EXPECT_TRUE(std::equal(from + kHeads * kDim, from + (kHeads + kKv) * kDim, dk.begin() + i * kKv * kDim));
    EXPECT_TRUE(std::equal(from + (kHeads + kKv) * kDim, from + kWidth, dv.begin() + i * kKv * kDim));
  }
}

TEST_F(AttentionFixture, ScoresOfAnySizeDoNotOverflow) {
  for (float& value : q) value *= 1e3f;
  ops::attention_forward(ctx, forward);
  for (const float value : o) EXPECT_TRUE(std::isfinite(value));
}

TEST_F(AttentionFixture, NaNShowsInWhatItTouches) {
  for (std::vector<float>* input : {&q, &k, &v}) {
    const float kept = (*input)[0];
    (*input)[0] = std::numeric_limits<float>::quiet_NaN();
    ops::attention_forward(ctx, forward);
    EXPECT_TRUE(std::isnan(o[0]));
    ops::attention_backward(ctx, backward);
    EXPECT_TRUE(std::isnan(dq[0]));
    (*input)[0] = kept;
  }
}

TEST(Attention, NeverHoldsTheScoreMatrix) {
  constexpr int64_t kSeq = 8192, kDim = 64;
  Ledger ledger;
  MeasureArena measure(ledger);
  const Context ctx{.threads = 1, .memory = &measure};
  const Tensor x = Tensor::contiguous(nullptr, DType::bf16, {1, kSeq, 1, kDim});
  const Tensor lse = Tensor::contiguous(nullptr, DType::f32, {1, 1, kSeq});
  ops::attention_forward(ctx, {.q = x, .k = x, .v = x, .o = x, .lse = lse});
  EXPECT_GT(ledger.peak_bytes(), 0);
  EXPECT_LT(ledger.peak_bytes(), 1 << 20);  // one block of scores and its rows
  ops::attention_backward(ctx, {.dout = x, .q = x, .k = x, .v = x, .o = x, .lse = lse, .dq = x, .dk = x, .dv = x});
  EXPECT_LT(ledger.peak_bytes(), 2 * kSeq * kDim * 4 + (1 << 20));  // and dk, dv in f32
  EXPECT_LT(ledger.peak_bytes(), kSeq * kSeq * 2 / 16);
}

// The tensors are countable, dk and dv in f32 with the rest of the scratch are not.
TEST(Attention, ScratchThatOverflowsIsRefused) {
  Ledger ledger;
  MeasureArena measure(ledger);
  constexpr int64_t kSeq = (int64_t{1} << 60) - 64;
  const Tensor x = Tensor::contiguous(nullptr, DType::bf16, {1, kSeq, 1, 1});
  const Tensor lse = Tensor::contiguous(nullptr, DType::f32, {1, 1, kSeq});
  expect_error(
      [&] {
        ops::attention_backward({.memory = &measure},
                                {.dout = x, .q = x, .k = x, .v = x, .o = x, .lse = lse, .dq = x, .dk = x, .dv = x});
      },
      ErrorCode::invalid_argument, "inside the address space");
}

TEST_F(AttentionFixture, BadArgumentsAreNamedAndNothingIsWritten) {
  const auto refuse = [&](auto change, const char* text) {
    ops::AttentionForward bad = forward;
    change(bad);
    expect_error([&] { ops::attention_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(o, std::vector<float>(o.size(), -1.0f));
  };
  refuse([](auto& a) { a.q = {}; }, "'q' is missing");
  refuse([](auto& a) { a.q.rank = 3; }, "'q' has the wrong shape");
  refuse([](auto& a) { a.q.dtype = DType::i32; }, "'q' has the wrong type");
  refuse([](auto& a) { a.q.strides[3] = 2; }, "gap between neighbouring elements");
  refuse([](auto& a) { a.k.sizes[3] = 4; }, "'k' has the wrong shape");
  refuse([](auto& a) { a.k.sizes[2] = a.v.sizes[2] = 3; }, "a multiple of kv_heads, got 4 heads, 3 kv_heads");
  refuse([](auto& a) { a.k.data = nullptr; }, "null data pointer");
  refuse([](auto& a) { a.v.sizes[2] = 1; }, "'v' has the wrong shape");
  refuse([](auto& a) { a.v.dtype = DType::bf16; }, "'v' has the wrong type");
  refuse([](auto& a) { a.o.data = static_cast<std::byte*>(a.o.data) + 1; }, "misaligned");
  refuse([](auto& a) { a.o.data = a.q.data; }, "'o' overlaps 'q'");
  refuse([](auto& a) { a.o.strides[1] = 0; }, "share memory");
  refuse([](auto& a) { a.lse.sizes[1] = 2; }, "'lse' has the wrong shape");
  refuse([](auto& a) { a.lse.dtype = DType::bf16; }, "'lse' has the wrong type");
  refuse([](auto& a) { a.scale = NAN; }, "'scale' is not finite");
  backward.dk = backward.dv;
  expect_error([&] { ops::attention_backward(ctx, backward); }, ErrorCode::invalid_argument, "'dk' overlaps 'dv'");
  backward.lse = {};
  expect_error([&] { ops::attention_backward(ctx, backward); }, ErrorCode::invalid_argument, "'lse' is missing");
}

// Several documents in a row, as rows of their own would be.
struct Documents {
  static constexpr int64_t kBatch = 2, kHeads = 4, kKv = 2, kDim = 8;
  std::vector<std::vector<int64_t>> lengths;  // of each row, with one sum
  DType dtype = DType::f32;
  int64_t seq = std::accumulate(lengths[0].begin(), lengths[0].end(), int64_t{0});
  std::vector<std::vector<std::byte>> memory{};
  HeapArena heap{};
  Context ctx{.memory = &heap};
  std::vector<int32_t> starts{};

  Tensor make(int64_t heads, int id) {
    const Tensor sizes = Tensor::contiguous(nullptr, dtype, {kBatch, seq, heads, kDim});
    memory.emplace_back(static_cast<size_t>(sizes.bytes()));
    Tensor t = sizes;
    t.data = memory.back().data();
    if (id < 0) return t;
    const std::vector<float> values = normals(t.elements(), static_cast<uint32_t>(id));
    for (int64_t i = 0; i < t.elements(); ++i) {
      const auto value = values[static_cast<size_t>(i)];
      if (dtype == DType::f64) t.as<double>()[i] = static_cast<double>(bf16(value));
      if (dtype == DType::f32) t.as<float>()[i] = static_cast<float>(bf16(value));
      if (dtype == DType::bf16) t.as<bf16>()[i] = bf16(value);
    }
    return t;
  }
  static double value(const Tensor& t, int64_t i) {
    return t.dtype == DType::f64   ? t.as<double>()[i]
           : t.dtype == DType::f32 ? static_cast<double>(t.as<float>()[i])
                                   : static_cast<double>(static_cast<float>(t.as<bf16>()[i]));
  }
};

struct DocumentResults {
  std::vector<double> o, lse, dq, dk, dv;
};

// With `apart` each document by a call of its own, else all of them by one.
DocumentResults run_documents(Documents d, bool apart) {
  const Tensor q = d.make(d.kHeads, 0), k = d.make(d.kKv, 1), v = d.make(d.kKv, 2), dout = d.make(d.kHeads, 3);
  const Tensor o = d.make(d.kHeads, -1), dq = d.make(d.kHeads, -1), dk = d.make(d.kKv, -1), dv = d.make(d.kKv, -1);
  const DType statistic = d.dtype == DType::f64 ? DType::f64 : DType::f32;
  std::vector<std::byte> lse_bytes(static_cast<size_t>(d.kBatch * d.kHeads * d.seq * size_of(statistic)));
  const Tensor lse = Tensor::contiguous(lse_bytes.data(), statistic, {d.kBatch, d.kHeads, d.seq});
  DocumentResults results;
  results.lse.resize(static_cast<size_t>(lse.elements()));
  const auto run = [&](int64_t row, int64_t rows, int64_t first, int64_t count, const Tensor& starts) {
    const auto part = [&](const Tensor& t) { return t.slice(0, row, row + rows).slice(1, first, first + count); };
    std::vector<std::byte> bytes(static_cast<size_t>(rows * d.kHeads * count * size_of(statistic)));
    const Tensor own = Tensor::contiguous(bytes.data(), statistic, {rows, d.kHeads, count});
    ops::attention_forward(d.ctx,
                           {.q = part(q), .k = part(k), .v = part(v), .o = part(o), .lse = own, .starts = starts});
    ops::attention_backward(d.ctx, {.dout = part(dout),
                                    .q = part(q),
                                    .k = part(k),
                                    .v = part(v),
                                    .o = part(o),
                                    .lse = own,
                                    .dq = part(dq),
                                    .dk = part(dk),
                                    .dv = part(dv),
                                    .starts = starts});
    for (int64_t i = 0; i < own.elements(); ++i) {
      const int64_t head = i / count;  // of all rows of this call
      results.lse[static_cast<size_t>((row * d.kHeads + head) * d.seq + first + i % count)] = Documents::value(own, i);
    }
  };
  for (int64_t row = 0; row < d.kBatch; ++row) {
    int64_t first = 0;
    for (const int64_t length : d.lengths[static_cast<size_t>(row)]) {
      d.starts.insert(d.starts.end(), static_cast<size_t>(length), static_cast<int32_t>(first));
      if (apart) run(row, 1, first, length, {});
      first += length;
    }
  }
  if (!apart) run(0, d.kBatch, 0, d.seq, Tensor::contiguous(d.starts.data(), DType::i32, {d.kBatch, d.seq}));
  const auto values = [](const Tensor& t) {
    std::vector<double> list;
    for (int64_t i = 0; i < t.elements(); ++i) list.push_back(Documents::value(t, i));
    return list;
  };
  results.o = values(o), results.dq = values(dq), results.dk = values(dk), results.dv = values(dv);
  return results;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : HUGE_VAL;
  for (size_t i = 0; i < a.size(); ++i) most = std::isfinite(a[i]) ? std::max(most, std::abs(a[i] - b[i])) : HUGE_VAL;
  return most;
}

// Rows shorter and longer than a block of queries and of keys, documents that end where a block does and that do not.
TEST(Attention, DocumentsOfARowDoNotSeeEachOther) {
  const std::vector<std::vector<std::vector<int64_t>>> rows = {
      {{6}, {1, 5}},
      {{2, 3, 1}, {1, 1, 4}},
      {{128, 128}, {256}},
      {{60, 70, 1, 1, 168}, {129, 171}},
      {{300, 1, 259}, {17, 500, 43}},
  };
  for (const auto& lengths : rows) {
    for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 0.0}, {DType::f32, 2e-5}, {DType::bf16, 0.06}}) {
      const DocumentResults together = run_documents({.lengths = lengths, .dtype = dtype}, false);
      // Against documents in calls of their own, and against the reference, in calls of their own too.
      for (const DType oracle : {dtype, DType::f64}) {
        const DocumentResults apart = run_documents({.lengths = lengths, .dtype = oracle}, true);
        const std::string what = "seq " + std::to_string(apart.lse.size() / 8) + ", " + std::string(to_string(dtype));
        EXPECT_LE(largest_difference(together.o, apart.o), tolerance) << what;
        EXPECT_LE(largest_difference(together.lse, apart.lse), tolerance) << what;
        EXPECT_LE(largest_difference(together.dq, apart.dq), tolerance) << what;
        EXPECT_LE(largest_difference(together.dk, apart.dk), tolerance) << what;
        EXPECT_LE(largest_difference(together.dv, apart.dv), tolerance) << what;
      }
    }
  }
}

TEST_F(AttentionFixture, StartsOfDocumentsAreChecked) {
  std::vector<int32_t> starts(kSeq, 0);
  forward.starts = Tensor::contiguous(starts.data(), DType::i32, {1, kSeq});
  ops::attention_forward(ctx, forward);
  const std::vector<float> one = o;
  forward.starts = {};
  ops::attention_forward(ctx, forward);
  EXPECT_EQ(o, one);  // one document is none
  std::fill(o.begin(), o.end(), -1.0f);
  forward.starts = Tensor::contiguous(starts.data(), DType::i32, {1, kSeq});
  const auto refuse = [&](auto change, const char* text) {
    ops::AttentionForward bad = forward;
    starts.assign(kSeq, 0);
    change(bad);
    expect_error([&] { ops::attention_forward(ctx, bad); }, ErrorCode::invalid_argument, text);
    EXPECT_EQ(o, std::vector<float>(o.size(), -1.0f));
  };
  refuse([&](auto&) { starts[0] = 1; }, "query 0 of row 0; expected 0 to 0, got 1");
  refuse([&](auto&) { starts[2] = -1; }, "query 2 of row 0");
  refuse([&](auto&) { starts[3] = 3; }, "query 4 of row 0; expected 3 to 4, got 0");
  refuse([](auto& a) { a.causal = false; }, "'causal' is not set");
  refuse([](auto& a) { a.starts.sizes[1] = 5; }, "'starts' has the wrong shape");
  refuse([](auto& a) { a.starts.dtype = DType::f32; }, "'starts' has the wrong type");
}

TEST_F(AttentionFixture, WorksOnNoTokensAndWithoutLse) {
  forward.lse = {};
  ops::attention_forward(ctx, forward);
  EXPECT_NE(o[0], -1.0f);
  for (Tensor* t : {&forward.q, &forward.k, &forward.v, &forward.o}) t->sizes[1] = 0;
  ops::attention_forward(ctx, forward);
  forward.lse = Tensor::contiguous(lse.data(), DType::f32, {1, kHeads, 0});
  ops::attention_forward(ctx, forward);
  EXPECT_EQ(lse[0], -1.0f);
}

TEST_F(AttentionFixture, WorksInsideATeamOfTheCallers) {
  constexpr int kCallers = 4;
  std::vector<std::vector<float>> os(kCallers, o), dqs(kCallers, dq), dks(kCallers, dk), dvs(kCallers, dv);
  ops::attention_forward(ctx, forward);
  ops::attention_backward(ctx, backward);
#pragma omp parallel for num_threads(kCallers)
  for (int caller = 0; caller < kCallers; ++caller) {
    const auto i = static_cast<size_t>(caller);
    HeapArena own;
    const Context one{.threads = 1, .memory = &own};
    ops::AttentionForward f = forward;
    f.o = view(os[i], kHeads), f.lse = {};
    ops::attention_forward(one, f);
    ops::AttentionBackward b = backward;
    b.dq = view(dqs[i], kHeads), b.dk = view(dks[i], kKv), b.dv = view(dvs[i], kKv);
    ops::attention_backward(one, b);
  }
  EXPECT_EQ(os, std::vector(kCallers, o));
  EXPECT_EQ(dqs, std::vector(kCallers, dq));
  EXPECT_EQ(dks, std::vector(kCallers, dk));
  EXPECT_EQ(dvs, std::vector(kCallers, dv));
}

}  // namespace
}  // namespace tigon::test
