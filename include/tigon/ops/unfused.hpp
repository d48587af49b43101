#pragma once

#include <vector>

#include "tigon/ops/adamw.hpp"
#include "tigon/ops/add_rmsnorm.hpp"
#include "tigon/ops/attention.hpp"
#include "tigon/ops/cross_entropy.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "tigon/ops/geglu.hpp"
#include "tigon/ops/global_norm.hpp"
#include "tigon/ops/layernorm.hpp"
#include "tigon/ops/rmsnorm.hpp"
#include "tigon/ops/rope.hpp"
#include "tigon/ops/scale.hpp"
#include "tigon/ops/softmax.hpp"
#include "tigon/ops/swiglu.hpp"

// Every fused op as the chain of elementary ops that an eager framework runs, intermediates and all: what the study
// compares against. The arguments and results are the fused op's. linear and embedding are single steps there too, so
// they have no chain.
namespace tigon::ops::unfused {

// What an eager framework's autograd keeps alive from forward to backward.
using Tape = std::vector<OwnedTensor>;

void rmsnorm_forward(const Context& ctx, const RmsnormForward& args, Tape& tape);
void rmsnorm_backward(const Context& ctx, const RmsnormBackward& args, Tape& tape);
void add_rmsnorm_forward(const Context& ctx, const AddRmsnormForward& args, Tape& tape);
void add_rmsnorm_backward(const Context& ctx, const AddRmsnormBackward& args, Tape& tape);
void layernorm_forward(const Context& ctx, const LayernormForward& args, Tape& tape);
void layernorm_backward(const Context& ctx, const LayernormBackward& args, Tape& tape);
void rope_forward(const Context& ctx, const Rope& args);
void rope_backward(const Context& ctx, const Rope& args);
void swiglu_forward(const Context& ctx, const SwigluForward& args, Tape& tape);
void swiglu_backward(const Context& ctx, const SwigluBackward& args, Tape& tape);
void geglu_forward(const Context& ctx, const GegluForward& args, Tape& tape);
void geglu_backward(const Context& ctx, const GegluBackward& args, Tape& tape);
void softmax_forward(const Context& ctx, const SoftmaxForward& args);
void softmax_backward(const Context& ctx, const SoftmaxBackward& args);
void cross_entropy_forward(const Context& ctx, const CrossEntropyForward& args, Tape& tape);
void cross_entropy_backward(const Context& ctx, const CrossEntropyBackward& args, Tape& tape);
void fused_linear_cross_entropy_forward(const Context& ctx, const FusedLinearCrossEntropyForward& args, Tape& tape);
void fused_linear_cross_entropy_backward(const Context& ctx, const FusedLinearCrossEntropyForward& args, Tape& tape);
void attention_forward(const Context& ctx, const AttentionForward& args, Tape& tape);
void attention_backward(const Context& ctx, const AttentionBackward& args, Tape& tape);
void adamw(const Context& ctx, const Adamw& args);
void global_norm(const Context& ctx, const GlobalNorm& args);
void scale(const Context& ctx, const Scale& args);

}  // namespace tigon::ops::unfused
