// attention: who runs it. Forward by cuDNN where it can. Backward by our own kernel on Hopper, elsewhere by cuDNN where
// it can. Else, and where rows have several documents, our own kernels: on tensor cores where they fit, else plainly.
// TIGON_ATTENTION in the environment decides instead: own, sm80 (own, but none that needs Hopper) or cudnn.
#include <algorithm>
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

// Whether cuDNN is to be asked at all.
bool asks_cudnn(const Tensor& q) {
  const Wanted choice = wanted();
  return choice != Wanted::own && choice != Wanted::sm80 && q.elements() > 0;
}

// Where TIGON_ATTENTION names cuDNN, nobody else steps in.
void refuse_others(const char* where, const std::string& why_not) {
  if (wanted() != Wanted::cudnn || why_not.empty()) return;
  throw Error(ErrorCode::unsupported,
              {.where = where,
               .what = "TIGON_ATTENTION asks for cuDNN, which cannot do this: " + why_not,
               .fix = "Unset TIGON_ATTENTION, or put libcudnn.so.9 on LD_LIBRARY_PATH if it could not be opened."});
}

// The rest of a call that cuDNN may have a plan for: true when it did the work.
template <class Args>
bool done_by_cudnn(const Context& ctx, const char* where, const Args& args, const CudnnAnswer& answer,
                   void* workspace) {
  if (!answer.why_not.empty()) return false;
  const std::string why_not = run_cudnn(ctx, args, workspace);
  refuse_others(where, why_not);
  return why_not.empty();
}

const char* const kOneDocument = "here it takes each row for one document";

}  // namespace

void attention_forward(const Context& ctx, const ops::AttentionForward& args) {
  constexpr const char* kWhere = "attention_forward";
  CudnnAnswer cudnn{.why_not = "not asked"};
  if (asks_cudnn(args.q)) {
    cudnn = args.starts ? CudnnAnswer{.why_not = kOneDocument} : ask_cudnn(ctx, args);
    refuse_others(kWhere, cudnn.why_not);
  }
  const Buffer workspace = ctx.scratch("attention_workspace", cudnn.workspace);
  if (ctx.measuring() || args.q.elements() == 0) return;
  if (done_by_cudnn(ctx, kWhere, args, cudnn, workspace.data())) return;
  const DeviceGuard guard(ctx);
  if (!attention_forward_mma(ctx, args)) attention_forward_plain(ctx, args);
}

void attention_backward(const Context& ctx, const ops::AttentionBackward& args) {
  constexpr const char* kWhere = "attention_backward";
  const bool for_hopper = wanted() != Wanted::sm80;
  const int64_t hopper_bytes = for_hopper ? attention_backward_wgmma_bytes(ctx, args) : 0;
  // Measured: our kernel for Hopper is ahead of cuDNN's, also of those that may race.
  CudnnAnswer cudnn{.why_not = "our own is faster"};
  if (asks_cudnn(args.q) && (hopper_bytes == 0 || wanted() == Wanted::cudnn)) {
    cudnn = args.starts ? CudnnAnswer{.why_not = kOneDocument} : ask_cudnn(ctx, args, wanted() == Wanted::cudnn);
    refuse_others(kWhere, cudnn.why_not);
  }
  // The addresses decide who runs it, and scratch is booked before there are any: room for either.
  const int64_t keys = args.q.sizes[0] * attention_pitch(args.q.sizes[1]), queries = args.q.sizes[2] * keys;
  const int64_t statistics_bytes = round_up(2 * queries * static_cast<int64_t>(sizeof(float)), int64_t{256});
  const int64_t ends_bytes = args.starts ? round_up(keys * static_cast<int64_t>(sizeof(int32_t)), int64_t{256}) : 0;
  const int64_t own_bytes = statistics_bytes + ends_bytes + hopper_bytes;
  const Buffer scratch = ctx.scratch("attention_workspace", std::max(cudnn.workspace, own_bytes));
  if (ctx.measuring() || args.k.elements() == 0) return;  // without query heads, dk and dv are still zeroed
  if (done_by_cudnn(ctx, kWhere, args, cudnn, scratch.data())) return;
  const DeviceGuard guard(ctx);
  auto* const ends = scratch.as<unsigned char>() + statistics_bytes;
  const AttentionStatistics statistics{.lse2 = scratch.as<float>(),
                                       .delta = scratch.as<float>() + queries,
                                       .ends = args.starts ? reinterpret_cast<int32_t*>(ends) : nullptr};
  auto* const dq_sums = ends + ends_bytes;
  if (hopper_bytes > 0 && attention_backward_wgmma(ctx, args, statistics, dq_sums)) return;
  attention_statistics(ctx, args, statistics);
  if (attention_backward_mma(ctx, args, statistics)) return;
  attention_backward_plain(ctx, args, statistics);
}

}  // namespace tigon::cuda
