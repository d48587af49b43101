// adamw: one pass over all arrays, four elements per thread (adamw.cuh). States in 8 bits: adamw_in_codes.cu.
#include "backend/cuda/adamw.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256;

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const __grid_constant__ AdamwJob job) {
  const float grad_scale = job.grad_scale != nullptr ? *job.grad_scale : 1.0f;
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEach; first < job.n;
       first += int64_t{gridDim.x} * kThreads * kEach) {
    update_four<kAligned>(job, grad_scale, first);
  }
}

// The same where parameters, gradients and states are bf16 and rounded by chance: half the bytes leave half the time,
// so nothing is looked up. Whole vectors only, from a first element that begins a block of random words.
__global__ void __launch_bounds__(kThreads, 5) adamw_halves_kernel(const __grid_constant__ AdamwJob job) {
  const float grad_scale = job.grad_scale != nullptr ? *job.grad_scale : 1.0f;
  const auto at = [](const Array& array, int64_t i) { return static_cast<bf16*>(array.data) + i; };
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEach; first < job.n;
       first += int64_t{gridDim.x} * kThreads * kEach) {
    const auto raw_param = load_raw<kEach>(at(job.param, first)), raw_grad = load_raw<kEach>(at(job.grad, first));
    const auto raw_m = load_raw<kEach>(at(job.m, first)), raw_v = load_raw<kEach>(at(job.v, first));
    const uint4 random = philox((job.first_element + static_cast<uint64_t>(first)) / 4, job.random);
    const uint32_t words[kEach] = {random.x, random.y, random.z, random.w};
    float param[kEach], grad[kEach], m[kEach], v[kEach];
    unpack<bf16, kEach>(raw_param, param);
    unpack<bf16, kEach>(raw_grad, grad);
    unpack<bf16, kEach>(raw_m, m);
    unpack<bf16, kEach>(raw_v, v);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      update(job, grad_scale, grad[i], param[i], m[i], v[i]);
      param[i] = stochastic_bf16(param[i], words[i] & 0xffffu);
      m[i] = stochastic_bf16(m[i], words[i] >> 16);
      v[i] = stochastic_bf16(v[i], words[i] * ops::kBitsOfV >> 16);
    }
    store<kEach>(at(job.param, first), param);
    store<kEach>(at(job.m, first), m);
    store<kEach>(at(job.v, first), v);
  }
}

}  // namespace

void adamw(const Context& ctx, const ops::Adamw& args) {
  if (ctx.measuring() || args.param.sizes[0] == 0) return;
  const AdamwJob job = adamw_job(args);
  const DeviceGuard guard(ctx);
  if (job.m.dtype == DType::u8) return adamw_in_codes(ctx, job);
  const bool aligned = all_arrays(job, fours_aligned);
  const bool halves =
      aligned && all_arrays(job, [](const Array& a) { return a.data == nullptr || a.dtype == DType::bf16; }) &&
      job.stochastic && job.param_copy.data == nullptr && job.n % kEach == 0 && job.first_element % kEach == 0;
  const auto blocks = static_cast<unsigned>(std::min(divide_up(job.n, kThreads * kEach), kMaxGridX));
  const auto run = halves ? adamw_halves_kernel : aligned ? adamw_kernel<true> : adamw_kernel<false>;
  run<<<blocks, kThreads, 0, stream_of(ctx)>>>(job);
  check_launch("adamw");
}

}  // namespace tigon::cuda
