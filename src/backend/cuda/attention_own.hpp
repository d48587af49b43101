#pragma once

#include "tigon/ops/attention.hpp"

// Attention by our own kernels, without a library. None of them ever holds a matrix of all scores.
namespace tigon::cuda {

// Any type, size, stride and alignment: scores and sums in f32, on the plain arithmetic units.
void attention_forward_plain(const Context& ctx, const ops::AttentionForward& args);
void attention_backward_plain(const Context& ctx, const ops::AttentionBackward& args, const float* delta);

// On tensor cores. False, with nothing done, where they do not fit: f32, long or odd D, rows off 16 bytes.
bool attention_forward_mma(const Context& ctx, const ops::AttentionForward& args);
bool attention_backward_mma(const Context& ctx, const ops::AttentionBackward& args, const float* delta);

// delta = Σ_d dout·o for each query, [batch, heads, seq]: what both passes of backward subtract.
void attention_delta(const Context& ctx, const ops::AttentionBackward& args, float* delta);

}  // namespace tigon::cuda
