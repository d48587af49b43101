#pragma once

#include <optional>

#include "tigon/model/block.hpp"

// What the stages share: views of heads, and each op in the form that was asked for.
namespace tigon {

// Columns [column, column + heads·D) of a [T, width] tensor as [batch, seq, heads, D].
Tensor heads_view(const BlockShape& shape, const Tensor& t, int64_t column, int64_t heads);

// q, k and v of a block, or their gradients, as [batch, seq, heads, D], wherever they stand.
struct HeadViews {
  Tensor q, k, v;
};
HeadViews packed_heads(const BlockShape& shape, const Tensor& qkv);
HeadViews separate_heads(const BlockShape& shape, const Tensor& q, const Tensor& k, const Tensor& v);
// Those that a block has.
HeadViews heads_of(const BlockRun& run);

// Rotates q and k in place, forward or back.
void rotate(const BlockRun& run, const HeadViews& heads, bool backward);

// Rows of a weight.
struct Rows {
  int64_t begin = 0, end = -1;  // -1: to the last
};
// y = x·weightᵀ + bias, and its gradients: the one place where a block multiplies by a weight.
void project_forward(const BlockRun& run, BlockWeight which, const Tensor& x, const Tensor& y, Rows rows = {});
// Of a whole weight, its bias and its adapter; absent where they are frozen or not there.
struct ProjectGradients {
  Gradient weight, bias, a, b;
};
ProjectGradients project_gradients(const BlockRun& run, BlockWeight which);
struct ProjectBackward {
  Tensor dy{};
  Tensor x{};   // for the weight's gradient; absent: not now
  Tensor dx{};  // absent: not wanted
  Rows rows{};
  bool accumulate_dx = false;
  std::optional<ProjectGradients> gradients{};  // where a caller goes through the rows; else they are asked for
};
void project_backward(const BlockRun& run, BlockWeight which, const ProjectBackward& args);

// `tape` is where the unfused form keeps what backward needs.
void norm_forward(const BlockRun& run, Slot tape, const ops::RmsnormForward& args);
void norm_backward(const BlockRun& run, Slot tape, const ops::RmsnormBackward& args);

// [T, 2F] into [T, F], and back: da and db take the place of a and b. Where `act` is given to backward it receives
// what forward wrote; it may be dact.
void gated_forward(const BlockRun& run, const Tensor& gate_up, const Tensor& act);
void gated_backward(const BlockRun& run, const Tensor& dact, const Tensor& gate_up, const Tensor& act);

// Each variant of a stage.
Stage norm1_stage(const BlockShape& shape);
Stage qkv_stage(const BlockShape& shape);
Stage qkv_normed_stage(const BlockShape& shape);
Stage attention_stage(bool separate);
Stage cached_attention_stage(bool separate);
Stage o_proj_stage();
Stage norm2_stage(const BlockShape& shape);
Stage gate_up_stage(const BlockShape& shape);
Stage activation_stage(const BlockShape& shape);
Stage down_stage(const BlockShape& shape);
Stage tiled_mlp_stage();

}  // namespace tigon
