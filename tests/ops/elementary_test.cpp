#include "tigon/ops/elementary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Memory with two views of the same shape and strides: one of a storage type, one f64 with the same values, so that an
// op can run on both backends.
class Twin {
 public:
  // Strides of 0 stay, so that a broadcast operand is a broadcast in both.
  Twin(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    narrow = Tensor::contiguous(nullptr, dtype, sizes);
    int64_t extent = 1;
    for (size_t d = 0; d < strides.size(); ++d) {
      narrow.strides[d] = strides[d];
      extent += (sizes[d] - 1) * strides[d];
    }
    exact = narrow;
    exact.dtype = DType::f64;
    bytes_.resize(static_cast<size_t>(extent * size_of(dtype)));
    doubles_.resize(static_cast<size_t>(extent));
    narrow.data = bytes_.data();
    exact.data = doubles_.data();
  }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  void fill(uint32_t id, double mean, double deviation) {
    const RandomStream random{.seed = 1, .tensor = id};
    for (size_t i = 0; i < doubles_.size(); ++i) {
      const double value = mean + deviation * random.normal(i);
      switch (narrow.dtype) {
        case DType::bf16: narrow.as<bf16>()[i] = bf16(value); break;
        case DType::f16: narrow.as<f16>()[i] = f16(value); break;
        default: narrow.as<float>()[i] = static_cast<float>(value);
      }
      doubles_[i] = get(i);
    }
  }
  double get(size_t i) const {
    switch (narrow.dtype) {
      case DType::bf16: return static_cast<double>(narrow.as<bf16>()[i]);
      case DType::f16: return static_cast<double>(narrow.as<f16>()[i]);
      default: return narrow.as<float>()[i];
    }
  }
  // Every element, gaps included: those must not have been written to.
  void expect_equal(double units, const std::string& what) const {
    for (size_t i = 0; i < doubles_.size(); ++i) {
      const double allowed = units * epsilon(narrow.dtype) * std::abs(doubles_[i]) + 1e-6;
      ASSERT_NEAR(get(i), doubles_[i], allowed) << what << " at " << i;
    }
  }

  Tensor narrow, exact;

 private:
  std::vector<std::byte> bytes_;
  std::vector<double> doubles_;
};

struct Layout2 {
  std::vector<int64_t> sizes, x, y;
};

// Contiguous, transposed, padded, broadcast along either side, four dimensions, longer than one piece, a single one.
const std::vector<Layout2> kLayouts = {
    {{7, 33}, {33, 1}, {33, 1}},    {{33, 7}, {1, 33}, {7, 1}},
    {{5, 20}, {24, 1}, {22, 1}},    {{6, 40}, {0, 1}, {40, 1}},
    {{6, 40}, {1, 0}, {40, 1}},     {{2, 3, 4, 5}, {60, 5, 15, 1}, {60, 20, 5, 1}},
    {{2, 2500}, {2500, 1}, {1, 2}}, {{1}, {1}, {1}},
};

TEST(Elementary, UnaryOpsAgreeWithTheReference) {
  const Context ctx{};
  for (int op = 0; op <= static_cast<int>(ops::UnaryOp::gelu_erf); ++op) {
    const auto unary_op = static_cast<ops::UnaryOp>(op);
    const bool positive =
        unary_op == ops::UnaryOp::sqrt || unary_op == ops::UnaryOp::rsqrt || unary_op == ops::UnaryOp::log;
    for (const Layout2& layout : kLayouts) {
      for (const DType x_type : kTypes) {
        for (const DType y_type : kTypes) {
          Twin x(x_type, layout.sizes, layout.x), y(y_type, layout.sizes, layout.y);
          x.fill(0, positive ? 8.0 : 0.0, positive ? 1.0 : 2.0);
          y.fill(1, 0.0, 1.0);
          ops::unary(ctx, {.op = unary_op, .x = x.narrow, .y = y.narrow, .alpha = 0.5, .beta = 0.25});
          ops::unary(ctx, {.op = unary_op, .x = x.exact, .y = y.exact, .alpha = 0.5, .beta = 0.25});
          y.expect_equal(y_type == DType::f32 ? 8 : 0.51, "unary op " + std::to_string(op));
        }
      }
    }
  }
}

TEST(Elementary, BinaryOpsAgreeWithTheReference) {
  const Context ctx{};
  for (int op = 0; op <= static_cast<int>(ops::BinaryOp::tanh_grad); ++op) {
    const auto binary_op = static_cast<ops::BinaryOp>(op);
    for (const Layout2& layout : kLayouts) {
      for (const DType a_type : kTypes) {
        for (const DType b_type : kTypes) {
          // The type of y differs from both.
          const DType y_type = a_type == b_type ? DType::f32 : DType::bf16;
          Twin a(a_type, layout.sizes, layout.y), b(b_type, layout.sizes, layout.x), y(y_type, layout.sizes, layout.y);
          a.fill(0, 0.0, 1.0);
          b.fill(1, binary_op == ops::BinaryOp::div ? 8.0 : 0.0, 1.0);
          y.fill(2, 0.0, 1.0);
          ops::binary(ctx, {.op = binary_op, .a = a.narrow, .b = b.narrow, .y = y.narrow});
          ops::binary(ctx, {.op = binary_op, .a = a.exact, .b = b.exact, .y = y.exact});
          y.expect_equal(y_type == DType::f32 ? 8 : 0.51, "binary op " + std::to_string(op));
        }
      }
    }
  }
}

TEST(Elementary, ReductionsAgreeWithTheReference) {
  const Context ctx{};
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{1, 1}, {3, 17}, {70, 300}, {2, 5000}, {5000, 2}, {130, 1}};
  for (const auto& [rows, columns] : shapes) {
    for (const bool transposed : {false, true}) {
      for (const DType x_type : kTypes) {
        for (const DType y_type : kTypes) {
          for (const ops::ReduceOp op : {ops::ReduceOp::sum, ops::ReduceOp::mean, ops::ReduceOp::max}) {
            for (const bool over_rows : {false, true}) {
              if (over_rows && op == ops::ReduceOp::max) continue;
              Twin x(x_type, {rows, columns},
                     transposed ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{columns + 2, 1});
              Twin y(y_type, {over_rows ? columns : rows}, {3});
              x.fill(0, 1.0, 1.0);
              y.fill(1, 0.0, 1.0);
              ops::reduce(ctx, {.op = op, .x = x.narrow, .y = y.narrow, .over_rows = over_rows});
              ops::reduce(ctx, {.op = op, .x = x.exact, .y = y.exact, .over_rows = over_rows});
              y.expect_equal(y_type == DType::f32 ? 16 : 0.51, "reduce");
            }
          }
        }
      }
    }
  }
}

TEST(Elementary, GatherAndScatterAgreeWithTheReference) {
  const Context ctx{};
  std::vector<int64_t> index = {2, -100, 0, 3, 2};
  std::vector<int32_t> short_index(index.begin(), index.end());
  for (const Tensor& indices :
       {Tensor::contiguous(index.data(), DType::i64, {5}), Tensor::contiguous(short_index.data(), DType::i32, {5})}) {
    for (const DType x_type : kTypes) {
      for (const DType y_type : kTypes) {
        Twin table(x_type, {5, 4}, {6, 1}), vector(y_type, {5}, {2});
        table.fill(0, 0.0, 1.0);
        vector.fill(1, 0.0, 1.0);
        ops::gather(ctx, {.x = table.narrow, .index = indices, .y = vector.narrow});
        ops::gather(ctx, {.x = table.exact, .index = indices, .y = vector.exact});
        vector.expect_equal(0.51, "gather");
        Twin addends(y_type, {5}, {2});
        addends.fill(2, 0.0, 1.0);
        ops::scatter_add(ctx, {.x = addends.narrow, .index = indices, .y = table.narrow});
        ops::scatter_add(ctx, {.x = addends.exact, .index = indices, .y = table.exact});
        table.expect_equal(x_type == DType::f32 ? 1 : 0.51, "scatter_add");
      }
    }
  }
}

TEST(Elementary, OutOfRangeIndicesAreRefused) {
  const Context ctx{};
  std::vector<float> x(6, 1.0f), y(2, -1.0f);
  std::vector<int64_t> index = {1, 3};
  const Tensor table = Tensor::contiguous(x.data(), DType::f32, {2, 3});
  const Tensor indices = Tensor::contiguous(index.data(), DType::i64, {2});
  const Tensor vector = Tensor::contiguous(y.data(), DType::f32, {2});
  expect_error([&] { ops::gather(ctx, {.x = table, .index = indices, .y = vector}); }, ErrorCode::invalid_argument,
               "'index' is out of range at position 1");
  expect_error([&] { ops::scatter_add(ctx, {.x = vector, .index = indices, .y = table}); }, ErrorCode::invalid_argument,
               "'index' is out of range at position 1");
  EXPECT_EQ(y, std::vector<float>(2, -1.0f));
  EXPECT_EQ(x, std::vector<float>(6, 1.0f));
}

TEST(Elementary, OutputsThatOverlapAreRefused) {
  std::vector<float> x(6, 1.0f), y(6, -1.0f);
  int64_t index[2] = {0, 1};
  const Context ctx;
  const Tensor in = Tensor::contiguous(x.data(), DType::f32, {2, 3});
  Tensor rows = Tensor::contiguous(y.data(), DType::f32, {2, 3}),
         values = Tensor::contiguous(y.data(), DType::f32, {2});
  rows.strides[0] = values.strides[0] = 0;
  const Tensor ids = Tensor::contiguous(index, DType::i64, {2});
  const auto refuse = [](const auto& call, const char* text = "share memory") {
    expect_error(call, ErrorCode::invalid_argument, text);
  };
  refuse([&] { ops::unary(ctx, {.x = in, .y = rows}); });
  refuse([&] { ops::binary(ctx, {.a = in, .b = in, .y = rows}); });
  refuse([&] { ops::reduce(ctx, {.x = in, .y = values}); });
  refuse([&] { ops::gather(ctx, {.x = in, .index = ids, .y = values}); });
  refuse([&] { ops::scatter_add(ctx, {.x = Tensor::contiguous(x.data(), DType::f32, {2}), .index = ids, .y = rows}); });
  const Tensor over_index = Tensor::contiguous(index, DType::f32, {2});
  refuse([&] { ops::gather(ctx, {.x = in, .index = ids, .y = over_index}); }, "'y' overlaps 'index'");
  EXPECT_EQ(y, std::vector<float>(6, -1.0f));
}

TEST(Elementary, FillReadsNothing) {
  const Context ctx{};
  std::vector<float> y(40, kNaN);
  const Tensor t = Tensor::contiguous(y.data(), DType::f32, {40});
  ops::unary(ctx, {.x = t, .y = t, .alpha = 0, .beta = -3});
  EXPECT_EQ(y, std::vector<float>(40, -3.0f));
}

TEST(Elementary, NaNPropagates) {
  const Context ctx{};
  for (int op = 0; op <= static_cast<int>(ops::UnaryOp::gelu_erf); ++op) {
    std::vector<float> x(40, 1.0f), y(40, 0.0f);
    x[3] = x[39] = kNaN;
    ops::unary(ctx, {.op = static_cast<ops::UnaryOp>(op),
                     .x = Tensor::contiguous(x.data(), DType::f32, {40}),
                     .y = Tensor::contiguous(y.data(), DType::f32, {40})});
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[39]) && !std::isnan(y[0])) << "unary op " << op;
  }
  for (int op = 0; op <= static_cast<int>(ops::BinaryOp::tanh_grad); ++op) {
    std::vector<float> a(20, 1.0f), b(20, 1.0f), y(20, 0.0f);
    a[2] = b[19] = kNaN;
    ops::binary(ctx, {.op = static_cast<ops::BinaryOp>(op),
                      .a = Tensor::contiguous(a.data(), DType::f32, {20}),
                      .b = Tensor::contiguous(b.data(), DType::f32, {20}),
                      .y = Tensor::contiguous(y.data(), DType::f32, {20})});
    EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[19]) && !std::isnan(y[0])) << "binary op " << op;
  }
  for (const ops::ReduceOp op : {ops::ReduceOp::sum, ops::ReduceOp::mean, ops::ReduceOp::max}) {
    for (const size_t at : {size_t{0}, size_t{1500}, size_t{2999}}) {
      std::vector<float> x(3000, 1.0f), y(1);
      x[at] = kNaN;
      ops::reduce(ctx, {.op = op,
                        .x = Tensor::contiguous(x.data(), DType::f32, {1, 3000}),
                        .y = Tensor::contiguous(y.data(), DType::f32, {1})});
      EXPECT_TRUE(std::isnan(y[0])) << "NaN at " << at;
    }
  }
}

TEST(Elementary, ExtremesStayInRange) {
  const Context ctx{};
  std::vector<float> x = {-1e30f, -200.0f, -88.0f, 88.0f, 200.0f, 1e30f, INFINITY, -INFINITY}, y(8);
  const auto run = [&](ops::UnaryOp op) {
    ops::unary(ctx, {.op = op,
                     .x = Tensor::contiguous(x.data(), DType::f32, {8}),
                     .y = Tensor::contiguous(y.data(), DType::f32, {8})});
  };
  run(ops::UnaryOp::exp);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_NEAR(y[2], std::exp(-88.0), 1e-6 * std::exp(-88.0));
  EXPECT_FLOAT_EQ(y[3], std::exp(88.0f));
  EXPECT_EQ(y[4], INFINITY);
  EXPECT_EQ(y[6], INFINITY);
  EXPECT_EQ(y[7], 0.0f);
  run(ops::UnaryOp::log);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[7]));
  EXPECT_FLOAT_EQ(y[3], std::log(88.0f));
  EXPECT_FLOAT_EQ(y[5], std::log(1e30f));
  EXPECT_EQ(y[6], INFINITY);
  run(ops::UnaryOp::tanh);
  EXPECT_EQ(y, (std::vector<float>{-1, -1, -1, 1, 1, 1, 1, -1}));
  for (const ops::UnaryOp op : {ops::UnaryOp::silu, ops::UnaryOp::gelu_tanh, ops::UnaryOp::gelu_erf}) {
    run(op);
    for (size_t i = 3; i < 7; ++i) EXPECT_EQ(y[i], x[i]) << "element " << i;
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(y[i], 0.0f, 1e-30f) << "element " << i;
  }
}

}  // namespace
}  // namespace tigon::test
