// adamw_list: up to 128 arrays in one launch, whose table travels as its parameter. Blocks of threads take pieces of
// 2048 elements, of whichever array: in four elements a thread, or a block of 8-bit states a warp (codes.cuh).
#include "backend/cuda/codes.cuh"

namespace tigon::cuda {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kResident = 3;  // blocks of threads on a multiprocessor
constexpr int kPiece = kWarps * kCodeBlock;
constexpr int kMaxJobs = 128;

struct JobList {
  AdamwJob jobs[kMaxJobs];
  bool aligned[kMaxJobs];
  int64_t first_piece[kMaxJobs + 1];
  int count;
};
static_assert(sizeof(JobList) < 32764, "a kernel's parameters");

template <bool kAligned>
__device__ __forceinline__ void update_piece(const AdamwJob& job, int64_t piece, const SharedTables (&tables)[2]) {
  const float grad_scale = job.grad_scale != nullptr ? *job.grad_scale : 1.0f;
  if (job.m.dtype == DType::u8) {
    const int64_t block = piece * kWarps + threadIdx.x / 32;
    if (block * kCodeBlock < job.n) update_code_block<kAligned>(job, grad_scale, block, tables);
    return;
  }
#pragma unroll
  for (int k = 0; k < kPiece / (kThreads * kEach); ++k) {
    const int64_t first = piece * kPiece + int64_t{k} * kThreads * kEach + threadIdx.x * kEach;
    if (first < job.n) update_four<kAligned>(job, grad_scale, first);
  }
}

__global__ void __launch_bounds__(kThreads, kResident)
    adamw_list_kernel(const __grid_constant__ JobList list, bool coded) {
  __shared__ SharedTables tables[2];
  if (coded) load_tables(tables);
  const int64_t pieces = list.first_piece[list.count];
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    int low = 0, high = list.count;  // the last array that begins at this piece or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (list.first_piece[middle] <= piece) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const AdamwJob& job = list.jobs[low];
    if (list.aligned[low]) {
      update_piece<true>(job, piece - list.first_piece[low], tables);
    } else {
      update_piece<false>(job, piece - list.first_piece[low], tables);
    }
  }
}

}  // namespace

void adamw_list(const Context& ctx, const ops::AdamwList& args) {
  if (ctx.measuring()) return;
  const DeviceGuard guard(ctx);
  JobList list;
  list.count = 0;
  list.first_piece[0] = 0;
  bool coded = false;
  const auto flush = [&] {
    const int64_t most = int64_t{kResident} * device_numbers(ctx.device).multiprocessors;
    const int64_t pieces = list.first_piece[list.count];
    if (pieces > 0) {
      adamw_list_kernel<<<static_cast<unsigned>(std::min(pieces, most)), kThreads, 0, stream_of(ctx)>>>(list, coded);
      check_launch("adamw_list");
    }
    list.count = 0;
    coded = false;
  };
  for (const ops::Adamw& update : args.updates) {
    const int64_t n = update.param.sizes[0];
    if (n == 0) continue;
    AdamwJob& job = list.jobs[list.count] = adamw_job(update);
    list.aligned[list.count] = all_arrays(job, fours_aligned);
    list.first_piece[list.count + 1] = list.first_piece[list.count] + divide_up(n, kPiece);
    coded = coded || job.m.dtype == DType::u8;
    if (++list.count == kMaxJobs) flush();
  }
  flush();
}

}  // namespace tigon::cuda
