// attention: who runs it. Forward by cuDNN where it can. Backward by our own kernel on Hopper, elsewhere by cuDNN where
// it can. Else our own kernels: on tensor cores where they fit, else plainly. TIGON_ATTENTION in the environment
// decides instead: own, sm80 (own, but none that needs Hopper) or cudnn.
#include <cstdlib>
#include <string>

#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/lib/attention_cudnn.hpp"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

enum class Wanted { any, own, sm80, cudnn };

Wanted wanted() {
  const char* value = std::getenv("TIGON_ATTENTION");
  if (value == nullptr || *value == '\0') return Wanted::any;
  if (std::string(value) == "own") return Wanted::own;
  if (std::string(value) == "sm80") return Wanted::sm80;
  if (std::string(value) == "cudnn") return Wanted::cudnn;
  throw Error(ErrorCode::invalid_argument,
              {.where = "TIGON_ATTENTION", .what = "unknown value", .expected = "own, sm80 or cudnn", .got = value});
}

// Tries cuDNN where it is wanted: true when it did the work.
template <class Try>
bool done_by_cudnn(const char* where, const Tensor& q, const Try& attempt) {
  const Wanted choice = wanted();
  if (choice == Wanted::own || choice == Wanted::sm80 || q.elements() == 0) return false;
  const std::string why_not = attempt(choice == Wanted::cudnn);
  if (choice == Wanted::cudnn && !why_not.empty()) {
    throw Error(ErrorCode::unsupported,
                {.where = where,
                 .what = "TIGON_ATTENTION asks for cuDNN, which cannot do this: " + why_not,
                 .fix = "Unset TIGON_ATTENTION, or put libcudnn.so.9 on LD_LIBRARY_PATH if it could not be opened."});
  }
  return why_not.empty();
}

}  // namespace

void attention_forward(const Context& ctx, const ops::AttentionForward& args) {
  if (done_by_cudnn("attention_forward", args.q, [&](bool) { return attention_forward_cudnn(ctx, args); })) return;
  if (ctx.measuring() || args.q.elements() == 0) return;
  const DeviceGuard guard(ctx);
  if (!attention_forward_mma(ctx, args)) attention_forward_plain(ctx, args);
}

void attention_backward(const Context& ctx, const ops::AttentionBackward& args) {
  // Measured: our kernel for Hopper is ahead of cuDNN's, also of those that may race.
  const bool own_is_faster = attention_backward_wgmma_fits(ctx, args);
  if (done_by_cudnn("attention_backward", args.q, [&](bool forced) {
        return own_is_faster && !forced ? std::string("our own is faster")
                                        : attention_backward_cudnn(ctx, args, forced);
      })) {
    return;
  }
  const int64_t queries = args.q.sizes[0] * args.q.sizes[2] * attention_pitch(args.q.sizes[1]);
  const Buffer both = ctx.scratch("attention_statistics", 2 * queries * static_cast<int64_t>(sizeof(float)));
  const bool for_hopper = wanted() != Wanted::sm80;
  const Buffer dq_sums = ctx.scratch("attention_dq", for_hopper ? attention_backward_wgmma_bytes(ctx, args) : 0);
  if (ctx.measuring() || args.k.elements() == 0) return;  // without query heads, dk and dv are still zeroed
  const DeviceGuard guard(ctx);
  const AttentionStatistics statistics{both.as<float>(), both.as<float>() + queries};
  if (for_hopper && attention_backward_wgmma(ctx, args, statistics, dq_sums.as<unsigned char>())) return;
  attention_statistics(ctx, args, statistics);
  if (attention_backward_mma(ctx, args, statistics)) return;
  attention_backward_plain(ctx, args, statistics);
}

}  // namespace tigon::cuda
