// attention by our own kernels: on tensor cores where they fit, else plainly.
#include "backend/cuda/attention_own.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

void attention_forward(const Context& ctx, const ops::AttentionForward& args) {
  if (ctx.measuring() || args.q.elements() == 0) return;
  const DeviceGuard guard(ctx);
  attention_forward_plain(ctx, args);
}

void attention_backward(const Context& ctx, const ops::AttentionBackward& args) {
  const int64_t queries = args.q.sizes[0] * args.q.sizes[1] * args.q.sizes[2];
  const Buffer delta = ctx.scratch("attention_delta", queries * static_cast<int64_t>(sizeof(float)));
  if (ctx.measuring() || args.k.elements() == 0) return;  // without query heads, dk and dv are still zeroed
  const DeviceGuard guard(ctx);
  attention_delta(ctx, args, delta.as<float>());
  attention_backward_plain(ctx, args, delta.as<float>());
}

}  // namespace tigon::cuda
