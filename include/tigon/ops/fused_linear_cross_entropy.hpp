#pragma once

#include "tigon/ops/cross_entropy.hpp"

namespace tigon::ops {

// How many tokens are worked on at a time. The chunk is the largest that keeps its logits within `budget_bytes`,
// rounded to GEMM tiles, with the tokens spread evenly over the chunks.
struct ChunkRule {
  int64_t tokens = 0;  // a fixed chunk; 0: from the budget
  // 0: on a GPU 256 MiB, but at least half of weight's size and a sixteenth of all logits, so that products stay large
  // enough to run at full speed; on a CPU a quarter of all logits, within 16 to 64 MiB.
  int64_t budget_bytes = 0;
  bool liger = false;  // Liger's rule instead: next_pow2(ceil(N / ceil(V/H)))
  // The least memory, for a fourth product: the logits of a chunk are never whole, but pass twice in panels of the
  // vocabulary, within `budget_bytes` (0: 32 MiB). A CPU then takes all tokens at once.
  bool lean = false;
};

// Classes [begin, end) of the vocabulary.
struct Classes {
  int64_t begin = 0;
  int64_t end = 0;
};

// A weight that is nowhere whole on the device, and its gradient: the lean walk asks for the rows of one panel of
// classes at a time, from the first panel to the last, and then, where gradients are wanted, back to the first. `next`
// is the panel that it will ask for after this one; empty: none. Measure mode asks as a run does.
class WeightPanels {
 public:
  virtual ~WeightPanels() = default;
  // weight[classes], until the next call.
  virtual Tensor weight(const Context& ctx, Classes classes, Classes next) = 0;
  // Where dweight[classes] goes: it holds the earlier sums where the op accumulates.
  virtual Tensor dweight(const Context& ctx, Classes classes, Classes next) = 0;
  // All that ctx.stream holds by now has written dweight[classes].
  virtual void written(const Context& ctx, Classes classes) = 0;
};

// The size of one stored logit: f32 on a CPU (f64 for f64), the storage type on a GPU.
int64_t logit_bytes(Device device, DType dtype);

// The chunk for a problem of this size, in [1, max(1, tokens)]. `logit_bytes` is the size of one stored logit.
int64_t chunk_tokens(const ChunkRule& rule, Device device, int64_t tokens, int64_t hidden, int64_t vocab,
                     int64_t logit_bytes);

// cross_entropy of x·weightᵀ + bias without the [tokens, V] logits: chunk by chunk, logits, loss, gradient over the
// logits, dx and dweight. Ignored tokens are left out before the GEMM. Gradients are computed only for what is present,
// and are those of the reduced loss (the sum with reduction none), times dloss if that is given. Inputs are only read,
// so a second call gives the same result. dweight is summed in f32 whatever its type; on a GPU, where that would take
// memory beside a 16-bit dweight, sums over chunks stand in its own: in bf16 on Hopper finer than it, elsewhere rounded
// over a few chunks (two in bf16, eight in f16 and in the lean walk), beyond which f32 is worth its memory. On a GPU,
// and on a CPU that multiplies bf16 natively, the gradient over the logits is rounded to x's type before the products;
// on a CPU not for an f32 dweight. On a GPU chunks past the last token that counts are skipped there. Recorded in a
// CUDA graph, more than one chunk leaves conditional nodes in it: such a graph cannot be cloned or become part of
// another.
struct FusedLinearCrossEntropyForward {
  Tensor x{};             // [tokens, hidden]
  Tensor weight{};        // [V, hidden]
  Tensor bias{};          // [V], optional
  Tensor target{};        // [tokens] i32 or i64
  Tensor class_weight{};  // [V] f32, optional
  Tensor token_scale{};   // [tokens] f32, optional
  Tensor dloss{};         // f32 [1] or [tokens], optional: upstream gradient
  CrossEntropyOptions options{};
  ChunkRule chunk{};
  CrossEntropyOutputs out{};
  Tensor dx{};                      // [tokens, hidden], optional
  Tensor dweight{};                 // [V, hidden], f32 or x's type, optional
  Tensor dbias{};                   // [V], optional
  bool accumulate_dweight = false;  // add to dweight and dbias
  // Optional, with chunk.lean and a dweight in x's type or f32: where weight and dweight come from and go to. Both then
  // give their sizes and types alone, and all tokens are one chunk.
  WeightPanels* panels = nullptr;
};
void fused_linear_cross_entropy_forward(const Context& ctx, const FusedLinearCrossEntropyForward& args);

// The gradients alone, for an upstream gradient that was not known in forward (reduction none). The same walk without
// the loss outputs; dloss is required.
void fused_linear_cross_entropy_backward(const Context& ctx, const FusedLinearCrossEntropyForward& args);

}  // namespace tigon::ops
