#include "tigon/ops/fused_linear_cross_entropy.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "ops/check.hpp"
#include "ops/loss_check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

constexpr int64_t kGpuBudget = int64_t{256} << 20;
constexpr int64_t kGpuMostChunks = 16;  // each reads and writes dweight once more
// The lean walk on a GPU: a panel of logits, and the f32 sums of a chunk's dx.
constexpr int64_t kLeanBudget = int64_t{32} << 20;
constexpr int64_t kLeanSums = int64_t{32} << 20;
constexpr int64_t kLeanMostChunks = 8;  // what a 16-bit dweight can add up without f32 sums beside it
// On a CPU smaller chunks are no slower, down to a few hundred rows: a quarter of all logits, within these.
constexpr int64_t kSmallestCpuBudget = int64_t{16} << 20;
constexpr int64_t kLargestCpuBudget = int64_t{64} << 20;

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The arguments with the chunk decided, as backends expect them.
FusedLinearCrossEntropyForward checked(const char* op, const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  const Check check(op, ctx);
  // Of what comes in panels only the sizes are here.
  Context sizes_ctx = ctx;
  sizes_ctx.books_only = ctx.books_only || args.panels != nullptr;
  const Check check_weight(op, sizes_ctx);
  check.tensor("x", args.x, {-1, -1}, "[tokens, hidden]");
  if (args.panels != nullptr && !args.chunk.lean)
    check.fail("a weight that comes in panels needs the lean walk", "chunk.lean", "a walk over whole logits");
  if (args.panels != nullptr && args.x.sizes[0] == 0)
    check.fail("there are no tokens to ask for panels with", "at least one", "0");
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  check.floating("x", args.x);
  check.rows_contiguous("x", args.x);
  check_weight.tensor("weight", args.weight, {-1, hidden}, "[V, hidden of x]");
  const int64_t vocab = args.weight.sizes[0];
  check.parameter("weight", args.weight, args.x);
  check.rows_contiguous("weight", args.weight);
  check.optional("bias", args.bias, {vocab}, "V of weight");
  check.parameter("bias", args.bias, args.x);
  check.contiguous("bias", args.bias);
  const LossArguments loss{.tokens = tokens,
                           .vocab = vocab,
                           .like_name = "x",
                           .like = args.x,
                           .target = args.target,
                           .class_weight = args.class_weight,
                           .token_scale = args.token_scale,
                           .options = args.options};
  check_loss(check, loss);
  check_loss_outputs(check, loss, args.out);
  if (args.dloss) check_dloss(check, loss, args.dloss);
  check.optional("dx", args.dx, {tokens, hidden}, "as x");
  check.same_dtype("dx", args.dx, "x", args.x);
  check_weight.optional("dweight", args.dweight, {vocab, hidden}, "as weight");
  check.parameter("dweight", args.dweight, args.x);
  check.optional("dbias", args.dbias, {vocab}, "V of weight");
  check.parameter("dbias", args.dbias, args.x);
  struct Named {
    const char* name;
    const Tensor& t;
  };
  const bool whole = args.panels == nullptr;
  const Tensor weight = whole ? args.weight : Tensor{}, dweight = whole ? args.dweight : Tensor{};
  const Named gradients[] = {{"dx", args.dx}, {"dweight", dweight}, {"dbias", args.dbias}};
  const Named inputs[] = {{"x", args.x},
                          {"weight", weight},
                          {"bias", args.bias},
                          {"target", args.target},
                          {"class_weight", args.class_weight},
                          {"token_scale", args.token_scale},
                          {"dloss", args.dloss}};
  const Named outputs[] = {{"loss", args.out.loss},
                           {"z_loss", args.out.z_loss},
                           {"accuracy", args.out.accuracy},
                           {"predicted", args.out.predicted},
                           {"lse", args.out.lse}};
  for (const Named& o : outputs) {
    check.apart(o.name, o.t, "weight", weight);
    check.apart(o.name, o.t, "bias", args.bias);
    check.apart(o.name, o.t, "dloss", args.dloss);
  }
  for (const Named& g : gradients) {
    check.writable(g.name, g.t);
    for (const Named& other : inputs) check.apart(g.name, g.t, other.name, other.t);
    for (const Named& other : outputs) check.apart(g.name, g.t, other.name, other.t);
    for (const Named& other : gradients) {
      if (&other != &g) check.apart(g.name, g.t, other.name, other.t);
    }
  }
  if (args.chunk.tokens < 0) check.fail("'chunk.tokens' is negative", "0 or more", std::to_string(args.chunk.tokens));
  if (args.chunk.budget_bytes < 0) {
    check.fail("'chunk.budget_bytes' is negative", "0 or more", std::to_string(args.chunk.budget_bytes));
  }
  FusedLinearCrossEntropyForward resolved = args;
  if (hidden == 0) resolved.dx = resolved.dweight = {};  // without elements they may be null, which no backend expects
  resolved.chunk.tokens =
      chunk_tokens(args.chunk, ctx.device, tokens, hidden, vocab, logit_bytes(ctx.device, args.x.dtype));
  if (args.panels != nullptr) resolved.chunk.tokens = std::max<int64_t>(1, tokens);
  (void)checked_bytes(op, DType::f64, std::array{resolved.chunk.tokens, vocab});  // wide enough for any type's logits
  if (args.chunk.lean && args.chunk.budget_bytes == 0) resolved.chunk.budget_bytes = kLeanBudget;
  return resolved;
}

using Function = OpFunction<FusedLinearCrossEntropyForward> Backend::*;

void check_and_route(const Context& ctx, const FusedLinearCrossEntropyForward& args, Function member, const char* op) {
  const FusedLinearCrossEntropyForward a = checked(op, ctx, args);
  route(ctx, a, a.x.dtype, member, op,
        {&a.out.loss, &a.out.z_loss, &a.out.accuracy, &a.out.predicted, &a.out.lse, &a.dx, &a.dweight, &a.dbias});
}

}  // namespace

int64_t logit_bytes(Device device, DType dtype) {
  if (dtype == DType::f64) return 8;
  return device.kind == DeviceKind::cuda ? size_of(dtype) : 4;
}

int64_t chunk_tokens(const ChunkRule& rule, Device device, int64_t tokens, int64_t hidden, int64_t vocab,
                     int64_t logit_bytes) {
  const int64_t all = std::max<int64_t>(1, tokens);
  vocab = std::max<int64_t>(1, vocab);
  hidden = std::max<int64_t>(1, hidden);
  logit_bytes = std::max<int64_t>(1, logit_bytes);
  const bool gpu = device.kind == DeviceKind::cuda;
  if (rule.lean && !gpu) return all;
  if (rule.tokens > 0) return std::min(rule.tokens, all);
  if (rule.liger) {
    const int64_t chunk = ceil_div(all, ceil_div(vocab, hidden));
    return std::min<int64_t>(all, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(chunk))));
  }
  int64_t budget = rule.budget_bytes;
  if (budget == 0) {
    // No more than makes the budget the largest, so that no product overflows.
    const int64_t logits = std::min(all, kLargestCpuBudget) * std::min(vocab, kLargestCpuBudget);
    budget = gpu ? kGpuBudget : std::clamp(logits * logit_bytes / 4, kSmallestCpuBudget, kLargestCpuBudget);
  }
  // Tiles of a GEMM: 128 rows on a GPU, a few registers' worth on a CPU.
  const int64_t tile = gpu ? 128 : 16;
  int64_t largest = std::max<int64_t>(1, budget / logit_bytes / vocab);
  if (gpu && rule.lean) {
    largest = std::max(kLeanSums / 4 / hidden, ceil_div(all, kLeanMostChunks));
  } else if (gpu && rule.budget_bytes == 0) {
    largest = std::max({largest, hidden / 2, ceil_div(all, kGpuMostChunks)});
  }
  if (largest >= all) return all;
  if (largest > tile) largest = largest / tile * tile;
  // As many chunks as that needs, of equal size, rounded up to tiles (which stays within `largest`).
  const int64_t even = ceil_div(all, ceil_div(all, largest));
  return largest > tile ? std::min(largest, ceil_div(even, tile) * tile) : even;
}

void fused_linear_cross_entropy_forward(const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  check_and_route(ctx, args, &Backend::fused_linear_cross_entropy_forward, "fused_linear_cross_entropy_forward");
}

void fused_linear_cross_entropy_backward(const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  constexpr const char* kOp = "fused_linear_cross_entropy_backward";
  FusedLinearCrossEntropyForward gradients_only = args;
  gradients_only.out = {};
  if (!args.dloss) Check(kOp, ctx).fail("'dloss' is missing", "a tensor of one value or one per token");
  check_and_route(ctx, gradients_only, &Backend::fused_linear_cross_entropy_backward, kOp);
}

}  // namespace tigon::ops
