// adamw over states in 8 bits: a warp for each block of 256 elements (codes.cuh). Blocks of threads stay and take one
// such block after the other, because each has to read the tables first.
#include "backend/cuda/codes.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 384, kWarps = kThreads / 32;  // no more, or registers spill
constexpr int kResident = 2;                           // blocks of threads on a multiprocessor

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, kResident) adamw_codes_kernel(const __grid_constant__ AdamwJob job) {
  __shared__ SharedTables tables[2];
  load_tables(tables);
  const float grad_scale = job.grad_scale != nullptr ? *job.grad_scale : 1.0f;
  const int64_t blocks = (job.n + kCodeBlock - 1) / kCodeBlock;
  for (int64_t block = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; block < blocks;
       block += int64_t{gridDim.x} * kWarps) {
    update_code_block<kAligned>(job, grad_scale, block, tables);
  }
}

}  // namespace

void adamw_in_codes(const Context& ctx, const AdamwJob& job) {
  const int64_t wanted = divide_up(divide_up(job.n, kCodeBlock), kWarps);
  const int64_t most = int64_t{kResident} * device_numbers(ctx.device).multiprocessors;
  const auto run = all_arrays(job, fours_aligned) ? adamw_codes_kernel<true> : adamw_codes_kernel<false>;
  run<<<static_cast<unsigned>(std::min(wanted, most)), kThreads, 0, stream_of(ctx)>>>(job);
  check_launch("adamw");
}

}  // namespace tigon::cuda
