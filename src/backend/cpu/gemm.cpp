// Matrix products by oneDNN's single-threaded gemm, one call per tile of the output. bf16 is multiplied as it is where
// the CPU has instructions for that, twice as fast as f32 on Zen 4. Elsewhere 16-bit operands are widened to f32 tile
// by tile, three times as fast as the library's emulation. f16 always is: CPUs that multiply it are rare, and only with
// AMX would they gain by it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/rows.hpp"
#include "backend/cpu/signals.hpp"
#include "backend/cpu/simd-inl.hpp"
// clang-format on

#include <dnnl.h>

#include <atomic>
#include <string>

#include "tigon/core/error.hpp"

// sgemm's sister. oneDNN exports it (seen in 2.6) but declares it in no public header; so a library may lack it, and
// then products are widened.
extern "C" [[gnu::weak]] dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                                             dnnl_dim_t k, float alpha, const tigon::bf16* a,
                                                             dnnl_dim_t lda, const tigon::bf16* b, dnnl_dim_t ldb,
                                                             float beta, float* c, dnnl_dim_t ldc);

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// out [rows, columns] without gaps = t in f32.
void WidenTile(const Tensor& t, float* out) {
  const int64_t rows = t.sizes[0], columns = t.sizes[1];
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    for (int64_t i = 0; i < rows; ++i) {
      const T* in = row<T>(t, i);
      for_row(columns, [&](int64_t j, auto part) HWY_ATTR { store(load(in + j, part), out + i * columns + j, part); });
    }
  });
}

// c = Σ_p pieces[p] (+ bias) (+ c), the pieces in order; `pieces` may be c itself. A piece has rows `stride` apart and
// the next piece begins `piece_stride` later.
void FinishTile(const float* pieces, int64_t count, int64_t piece_stride, int64_t stride, const Tensor& bias,
                bool accumulate, const Tensor& c) {
  const int64_t rows = c.sizes[0], columns = c.sizes[1];
  with_type(c.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    // Absent bias: any type will do, it is not read.
    with_type(bias ? bias.dtype : DType::f32, [&](auto* bias_type) HWY_ATTR {
      const auto* b = bias.as<std::remove_pointer_t<decltype(bias_type)>>();
      for (int64_t i = 0; i < rows; ++i) {
        const float* in = pieces + i * stride;
        T* out = row<T>(c, i);
        for_row(columns, [&](int64_t j, auto part) HWY_ATTR {
          V sum = load(in + j, part);
          for (int64_t p = 1; p < count; ++p) sum = hn::Add(sum, load(in + p * piece_stride + j, part));
          if (bias) sum = hn::Add(sum, load(b + j, part));
          if (accumulate) sum = hn::Add(sum, load(out + j, part));
          store(sum, out + j, part);
        });
      }
    });
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(WidenTile);
HWY_EXPORT(FinishTile);

namespace {

// Measured on Zen 4: from 128x256 up the tile hardly matters, so tiles are small enough to keep many threads busy.
constexpr int64_t kTileRows = 256, kTileColumns = 512;
constexpr int64_t kSmallRows = 128, kSmallColumns = 256;
constexpr int64_t kEnoughTasks = 16;
// A piece of k shorter than this is not worth the extra pass over its partial result.
constexpr int64_t kSmallestPiece = 2048;
// Depth of the widened tiles of 16-bit operands: A and B together stay within a core's L2.
constexpr int64_t kWidenedDepth = 512;

// [0, total) in pieces of at most `size`, nearly equal; one empty piece when total is 0.
Blocks cut(int64_t total, int64_t size) {
  Blocks blocks(total, 1, 1);
  blocks.count = std::max<int64_t>(1, (total + size - 1) / size);
  return blocks;
}

int64_t longest(const Blocks& blocks) { return (blocks.total + blocks.count - 1) / blocks.count; }

struct Tiling {
  Blocks m, n, k;

  Tiling(int64_t rows, int64_t columns, int64_t depth)
      : m(cut(rows, kTileRows)), n(cut(columns, kTileColumns)), k(cut(depth, std::max<int64_t>(1, depth))) {
    k.count = pieces(depth);
    if (tasks() >= kEnoughTasks) return;
    n = cut(columns, kSmallColumns);
    if (m.count * n.count < kEnoughTasks) m = cut(rows, kSmallRows);
    k.count = pieces(depth);
  }
  // A small result of a long sum: the sum is shared out as well, which costs less than smaller tiles.
  int64_t pieces(int64_t depth) const {
    const int64_t tiles = m.count * n.count;
    return std::clamp<int64_t>(depth / kSmallestPiece, 1, (kEnoughTasks + tiles - 1) / tiles);
  }
  int64_t tasks() const { return m.count * n.count * k.count; }
};

// Distance between rows as the library wants it: at least a row, also where there is only one.
int64_t leading(const Tensor& t) {
  return std::max<int64_t>({1, t.sizes[1], t.sizes[0] > 1 ? t.strides[0] : int64_t{1}});
}

// Whether the library can read an operand of this type where it is.
bool readable(const Tensor& t, DType dtype) {
  return t.dtype == dtype && (t.sizes[0] <= 1 || t.strides[0] >= t.sizes[1]);
}

Tensor block(const Tensor& t, int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
  Tensor part = t;
  part.data = static_cast<std::byte*>(t.data) + (row_begin * t.strides[0] + column_begin) * size_of(t.dtype);
  part.sizes[0] = row_end - row_begin;
  part.sizes[1] = column_end - column_begin;
  return part;
}

// What the library reads: t itself, or its widened copy in `buffer`.
Tensor as_f32(const Tensor& t, float* buffer) {
  if (readable(t, DType::f32)) return t;
  HWY_DYNAMIC_DISPATCH(WidenTile)(t, buffer);
  return Tensor::contiguous(buffer, DType::f32, {t.sizes[0], t.sizes[1]});
}

// One product's layout: which tiles, and what each thread's slot of scratch holds.
struct Product {
  const Gemm& args;
  int64_t rows, columns, depth;
  Tiling tiling;
  bool native, widen_a, widen_b, own_c;
  int64_t a_floats, b_floats, slot_floats;

  explicit Product(const Gemm& gemm)
      : args(gemm),
        rows(gemm.c.sizes[0]),
        columns(gemm.c.sizes[1]),
        depth(gemm.a.sizes[gemm.a_transposed ? 0 : 1]),
        tiling(rows, columns, depth),
        native(gemm.native && multiplies_natively(DType::bf16) && readable(gemm.a, DType::bf16) &&
               readable(gemm.b, DType::bf16)),
        widen_a(!native && !readable(gemm.a, DType::f32)),
        widen_b(!native && !readable(gemm.b, DType::f32)),
        own_c(gemm.c.dtype != DType::f32 && tiling.k.count == 1),
        a_floats(widen_a ? longest(tiling.m) * kWidenedDepth : 0),
        b_floats(widen_b ? longest(tiling.n) * kWidenedDepth : 0),
        slot_floats(a_floats + b_floats + (own_c ? longest(tiling.m) * longest(tiling.n) : 0)) {}

  bool split() const { return tiling.k.count > 1; }

  // out (+)= op(a)·op(b) over rows of tile i, columns of tile j and [k_begin, k_end) of the sum.
  dnnl_status_t multiply(int64_t i, int64_t j, int64_t k_begin, int64_t k_end, float* slot, float* out,
                         int64_t out_leading, bool add) const {
    const int64_t step = widen_a || widen_b ? kWidenedDepth : std::max<int64_t>(1, k_end - k_begin);
    const int64_t m0 = tiling.m.begin(i), m1 = tiling.m.end(i), n0 = tiling.n.begin(j), n1 = tiling.n.end(j);
    if (k_begin == k_end && !add) {  // an empty sum is zero
      for (int64_t r = 0; r < m1 - m0; ++r) std::fill_n(out + r * out_leading, n1 - n0, 0.0f);
    }
    for (int64_t k0 = k_begin; k0 < k_end; k0 += step) {
      const int64_t k1 = std::min(k_end, k0 + step);
      const Tensor a = args.a_transposed ? block(args.a, k0, k1, m0, m1) : block(args.a, m0, m1, k0, k1);
      const Tensor b = args.b_transposed ? block(args.b, n0, n1, k0, k1) : block(args.b, k0, k1, n0, n1);
      const float beta = add || k0 > k_begin ? 1.0f : 0.0f;
      const auto call = [&](auto* function, const auto* a_data, int64_t a_leading, const auto* b_data,
                            int64_t b_leading) {
        const SignalsHeld held;
        return function(args.a_transposed ? 'T' : 'N', args.b_transposed ? 'T' : 'N', m1 - m0, n1 - n0, k1 - k0, 1.0f,
                        a_data, a_leading, b_data, b_leading, beta, out, out_leading);
      };
      dnnl_status_t status = dnnl_success;
      if (native) {
        status = call(dnnl_gemm_bf16bf16f32, a.as<bf16>(), leading(a), b.as<bf16>(), leading(b));
      } else {
        const Tensor wide_a = as_f32(a, slot), wide_b = as_f32(b, slot + a_floats);
        status = call(dnnl_sgemm, wide_a.as<float>(), leading(wide_a), wide_b.as<float>(), leading(wide_b));
      }
      if (status != dnnl_success) return status;
    }
    return dnnl_success;
  }

  Tensor c_tile(int64_t i, int64_t j) const {
    return block(args.c, tiling.m.begin(i), tiling.m.end(i), tiling.n.begin(j), tiling.n.end(j));
  }
  void finish(int64_t i, int64_t j, const float* pieces, int64_t count, int64_t piece_stride, int64_t stride,
              bool accumulate) const {
    Tensor bias = args.bias;
    if (bias) bias = bias.slice(0, tiling.n.begin(j), tiling.n.end(j));
    HWY_DYNAMIC_DISPATCH(FinishTile)(pieces, count, piece_stride, stride, bias, accumulate, c_tile(i, j));
  }
};

}  // namespace

bool multiplies_natively(DType dtype) {
#if HWY_ARCH_X86
  // The library's names for instruction sets are sets of bits: one that has all of another's bits includes it.
  static const bool has_bf16 =
      dnnl_gemm_bf16bf16f32 != nullptr &&
      (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == static_cast<int>(dnnl_cpu_isa_avx512_core_bf16);
  return dtype == DType::bf16 && has_bf16;
#else
  (void)dtype;
  return false;
#endif
}

void gemm(const Context& ctx, const Gemm& args) {
  const Product product(args);
  const Tiling& tiling = product.tiling;
  if (product.rows == 0 || product.columns == 0) return;
  const int64_t slots = std::min<int64_t>(thread_count(ctx), tiling.tasks());
  const int64_t area = product.rows * product.columns;
  const Buffer scratch = ctx.scratch("gemm_tiles", slots * product.slot_floats * 4);
  const Buffer partials = ctx.scratch("gemm_partials", product.split() ? tiling.k.count * area * 4 : 0);
  if (ctx.measuring()) return;

  std::atomic<int> failure = dnnl_success;
  // Neighbouring tasks share their columns of b, the larger operand wherever it matters.
  parallel_tasks(ctx, tiling.tasks(), [&](int64_t task, int worker) {
    const int64_t i = task % tiling.m.count, j = task / tiling.m.count % tiling.n.count;
    const int64_t piece = task / tiling.m.count / tiling.n.count;
    const int64_t k0 = tiling.k.begin(piece), k1 = tiling.k.end(piece);
    float* slot = scratch.as<float>() + worker * product.slot_floats;
    dnnl_status_t status = dnnl_success;
    if (product.split()) {
      float* out = partials.as<float>() + piece * area + tiling.m.begin(i) * product.columns + tiling.n.begin(j);
      status = product.multiply(i, j, k0, k1, slot, out, product.columns, false);
    } else if (product.own_c) {
      float* out = slot + product.a_floats + product.b_floats;
      const int64_t stride = tiling.n.end(j) - tiling.n.begin(j);
      status = product.multiply(i, j, k0, k1, slot, out, stride, false);
      product.finish(i, j, out, 1, 0, stride, args.accumulate);
    } else {
      const Tensor c = product.c_tile(i, j);
      status = product.multiply(i, j, k0, k1, slot, c.as<float>(), leading(c), args.accumulate);
      if (args.bias) product.finish(i, j, c.as<float>(), 1, 0, c.strides[0], false);
    }
    if (status != dnnl_success) failure = status;
  });
  if (failure != dnnl_success) {
    throw Error(ErrorCode::internal,
                {.where = "gemm", .what = "oneDNN's gemm failed with status " + std::to_string(failure)});
  }
  if (!product.split()) return;
  parallel_tasks(ctx, tiling.m.count * tiling.n.count, [&](int64_t task) {
    const int64_t i = task % tiling.m.count, j = task / tiling.m.count;
    const float* first = partials.as<float>() + tiling.m.begin(i) * product.columns + tiling.n.begin(j);
    product.finish(i, j, first, tiling.k.count, area, product.columns, args.accumulate);
  });
}

int64_t gemm_scratch_limit(const Context& ctx, const Gemm& args) {
  const Product product(args);
  const int64_t rows = std::min(product.rows, kTileRows), columns = std::min(product.columns, kTileColumns);
  const int64_t slot = (product.widen_a ? rows * kWidenedDepth : 0) + (product.widen_b ? columns * kWidenedDepth : 0) +
                       (args.c.dtype != DType::f32 ? rows * columns : 0);
  // Split sums: the largest partial results of any smaller problem, over the numbers of tiles that are too few.
  const int64_t most_pieces = product.depth / kSmallestPiece;
  int64_t partials = 0;
  for (int64_t i = 1; i < kEnoughTasks && kTileRows * (i - 1) < product.rows; ++i) {
    for (int64_t j = 1; i * j < kEnoughTasks && kTileColumns * (j - 1) < product.columns; ++j) {
      const int64_t pieces = std::min(most_pieces, (kEnoughTasks + i * j - 1) / (i * j));
      const int64_t area = std::min(kTileRows * i, product.rows) * std::min(kTileColumns * j, product.columns);
      if (pieces > 1) partials = std::max(partials, pieces * area);
    }
  }
  constexpr int64_t kAlignment = 2 * 256;  // of the two blocks
  return (thread_count(ctx) * slot + partials) * 4 + kAlignment;
}

}  // namespace tigon::cpu
#endif
