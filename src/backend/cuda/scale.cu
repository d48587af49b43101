// scale: one pass in place, on a persistent grid; or, where the factor turns out to be 1, none.
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"
#include "backend/cuda/vec.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;    // per multiprocessor
constexpr int kUnrolled = 4;  // vectors of a thread on their way at a time

template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(T* x, int64_t n, const float* factor, bool aligned) {
  const float by = *factor;
  if (by == 1.0f) return;
  constexpr int W = kLanes<T>;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x, threads = int64_t{gridDim.x} * kThreads;
  const int64_t vectors = aligned ? n / W : 0;
#pragma unroll kUnrolled
  for (int64_t i = first; i < vectors; i += threads) {
    float v[W];
    load<W>(x + i * W, v);
#pragma unroll
    for (float& e : v) e *= by;
    store<W>(x + i * W, v);
  }
  for (int64_t i = vectors * W + first; i < n; i += threads) store_one(x + i, by * load_one(x + i));
}

}  // namespace

void scale(const Context& ctx, const ops::Scale& args) {
  const int64_t n = args.x.elements();
  if (ctx.measuring() || n == 0) return;
  const DeviceGuard guard(ctx);
  dispatch("scale", args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t most = int64_t{kBlocks} * device_numbers(ctx.device).multiprocessors;
    const auto blocks = static_cast<unsigned>(std::min(divide_up(n, kThreads * kLanes<T>), most));
    scale_kernel<T><<<blocks, kThreads, 0, stream_of(ctx)>>>(args.x.as<T>(), n, args.factor.as<float>(),
                                                             reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0);
    check_launch("scale");
  });
}

}  // namespace tigon::cuda
