// Matrix products by cuBLASLt. It counts columns first, so a row-major c = a·b is asked for as cᵀ = bᵀ·aᵀ.
#include "backend/cuda/lib/gemm.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "backend/cuda/copy_rows.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/lib/gemm_algorithms.hpp"
#include "backend/cuda/lib/gemm_padded.hpp"

namespace tigon::cuda {

namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

void check_floating(const Tensor& t) {
  if (!t.present() || t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f16) return;
  throw Error(ErrorCode::unsupported, {.where = "matrix product on a GPU",
                                       .what = "this type is not computed with on a GPU",
                                       .expected = "f32, bf16 or f16",
                                       .got = std::string(to_string(t.dtype)),
                                       .fix = "f64 runs on the CPU."});
}

// A power of two up to 256 that divides every row's address.
uint32_t alignment_of(const Tensor& t) {
  uint64_t bits = reinterpret_cast<uintptr_t>(t.data) | 256;
  if (t.sizes[0] > 1) bits |= static_cast<uint64_t>(t.strides[0] * size_of(t.dtype));
  return static_cast<uint32_t>(bits & (~bits + 1));
}

int64_t leading(const Tensor& t) { return t.sizes[0] > 1 ? t.strides[0] : std::max<int64_t>(1, t.sizes[1]); }

// Whether cuBLASLt has this mix of types.
bool direct(const Gemm& args) {
  if (args.a.dtype != args.b.dtype) return false;
  if (args.c.dtype != args.a.dtype && args.c.dtype != DType::f32) return false;
  return !args.bias || args.bias.dtype == args.c.dtype;
}

// c = 0, or bias alone: a product over nothing.
void without_terms(const Context& ctx, const Gemm& args) {
  if (args.accumulate) return;
  if (args.bias) {
    Tensor rows = args.bias;
    rows.rank = 2;
    rows.sizes[0] = args.c.sizes[0], rows.sizes[1] = args.bias.sizes[0];
    rows.strides[0] = 0, rows.strides[1] = 1;
    return unary(ctx, {.x = rows, .y = args.c});
  }
  const int64_t unit = size_of(args.c.dtype);
  check(cudaMemset2DAsync(args.c.data, static_cast<size_t>(leading(args.c) * unit), 0,
                          static_cast<size_t>(args.c.sizes[1] * unit), static_cast<size_t>(args.c.sizes[0]),
                          stream_of(ctx)),
        "matrix product");
}

// Rows that share memory, as in a broadcast view: the library has no distance between rows that is less than a row.
bool rows_overlap(const Tensor& t) { return t.sizes[0] > 1 && t.strides[0] < t.sizes[1]; }

// A tensor as this type, its rows apart: itself, or a copy.
struct Straight {
  OwnedTensor copy;
  Tensor view;
  Straight(const Context& ctx, const char* name, const Tensor& t, DType dtype, bool fill) : view(t) {
    if (!t || (t.dtype == dtype && (t.rank < 2 || !rows_overlap(t)))) return;
    copy = OwnedTensor(ctx, name, dtype, std::span<const int64_t>(t.sizes, static_cast<size_t>(t.rank)),
                       MemoryClass::workspace);
    view = copy.view;
    if (fill) unary(ctx, {.x = t, .y = view});
  }
};

void with_rows_apart(const Context& ctx, const Gemm& args) {
  const Straight a(ctx, "gemm_a", args.a, args.a.dtype, true), b(ctx, "gemm_b", args.b, args.b.dtype, true);
  Gemm apart = args;
  apart.a = a.view, apart.b = b.view;
  gemm(ctx, apart);
}

void through_f32(const Context& ctx, const Gemm& args) {
  const Straight a(ctx, "gemm_a", args.a, DType::f32, true), b(ctx, "gemm_b", args.b, DType::f32, true);
  const Straight bias(ctx, "gemm_bias", args.bias, DType::f32, true),
      c(ctx, "gemm_c", args.c, DType::f32, args.accumulate);
  Gemm wide = args;
  wide.a = a.view, wide.b = b.view, wide.c = c.view, wide.bias = bias.view;
  gemm(ctx, wide);
  if (c.view.data != args.c.data) unary(ctx, {.x = c.view, .y = args.c});
}

// What padded_gemm works with.
struct DeviceHands {
  const Context& ctx;
  void copy(const Tensor& from, const Tensor& to) const { copy_rows(ctx, from, to); }
  void clear(const Tensor& t) const { copy_rows(ctx, t.slice(1, 0, 0), t); }
  void product(const Gemm& args) const { gemm(ctx, args); }
};

}  // namespace

bool gemm_tunes() { return std::getenv("TIGON_GEMM_TUNE") != nullptr; }

void gemm(const Context& ctx, const Gemm& args) {
  for (const Tensor* t : {&args.a, &args.b, &args.c, &args.bias}) check_floating(*t);
  if (!direct(args)) return through_f32(ctx, args);
  if (rows_overlap(args.a) || rows_overlap(args.b)) return with_rows_apart(ctx, args);
  if (worth_padding(args)) return padded_gemm(ctx, args, DeviceHands{ctx});
  // The library wants the bias at a multiple of 16 bytes.
  const bool crooked = args.bias && reinterpret_cast<uintptr_t>(args.bias.data) % 16 != 0;
  const Buffer straight = ctx.scratch("gemm_bias", args.bias ? args.bias.bytes() : 0);
  const bool own = args.workspace == nullptr;
  const Buffer buffer = ctx.scratch("gemm_workspace", own ? kWorkspaceBytes : 0);
  if (ctx.measuring()) return;
  const int64_t m = args.c.sizes[0], n = args.c.sizes[1], k = args.a_transposed ? args.a.sizes[0] : args.a.sizes[1];
  if (m == 0 || n == 0) return;
  const DeviceGuard guard(ctx);
  if (k == 0) return without_terms(ctx, args);
  if (crooked) {
    check(cudaMemcpyAsync(straight.data(), args.bias.data, static_cast<size_t>(args.bias.bytes()),
                          cudaMemcpyDeviceToDevice, stream_of(ctx)),
          "matrix product");
  }

  const GemmKey key{.m = m,
                    .n = n,
                    .k = k,
                    .lda = leading(args.a),
                    .ldb = leading(args.b),
                    .ldc = leading(args.c),
                    .workspace = own ? kWorkspaceBytes : args.workspace_bytes,
                    .device = ctx.device.index,
                    .in_type = data_type(args.a.dtype),
                    .out_type = data_type(args.c.dtype),
                    .align_a = alignment_of(args.a),
                    .align_b = alignment_of(args.b),
                    .align_c = alignment_of(args.c),
                    .a_transposed = args.a_transposed,
                    .b_transposed = args.b_transposed,
                    .accumulate = args.accumulate,
                    .bias = args.bias.present()};
  run_gemm(key, {.a = args.a.data,
                 .b = args.b.data,
                 .c = args.c.data,
                 .bias = crooked ? straight.data() : args.bias.data,
                 .workspace = own ? buffer.data() : args.workspace,
                 .stream = stream_of(ctx)});
}

}  // namespace tigon::cuda
