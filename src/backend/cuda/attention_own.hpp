#pragma once

#include "tigon/ops/attention.hpp"

// Attention by our own kernels, without a library. None of them ever holds a matrix of all scores.
namespace tigon::cuda {

// What backward needs of each query, [batch, heads, pitch] in f32: kernels may read whole tiles of it, since it goes on
// beyond the last query with what makes its probabilities 0.
struct AttentionStatistics {
  float* lse2;   // lse / ln 2, so that probabilities are powers of 2; infinite beyond the last query
  float* delta;  // Σ_d dout·o; 0 beyond the last query
  // [batch, pitch]: of each key, one more than the last query that sees it, which is where its document ends; seq
  // beyond the last key. Null where every row is one document.
  int32_t* ends;
};
inline constexpr int64_t kAttentionPitch = 128;
constexpr int64_t attention_pitch(int64_t seq) {
  return (seq + kAttentionPitch - 1) / kAttentionPitch * kAttentionPitch;
}

// Any type, size, stride and alignment: scores and sums in f32, on the plain arithmetic units.
void attention_forward_plain(const Context& ctx, const ops::AttentionForward& args);
void attention_backward_plain(const Context& ctx, const ops::AttentionBackward& args,
                              const AttentionStatistics& statistics);

// On tensor cores. False, with nothing done, where they do not fit: f32, long or odd D, rows off 16 bytes.
bool attention_forward_mma(const Context& ctx, const ops::AttentionForward& args);
bool attention_backward_mma(const Context& ctx, const ops::AttentionBackward& args,
                            const AttentionStatistics& statistics);

// The same on Hopper's tensor cores; it makes the statistics itself. False, with nothing done, elsewhere and where they
// do not fit, or where TMA cannot read the tensors as they lie.
// `scratch` has attention_backward_wgmma_bytes, which are the same whatever the addresses; 0 where it fits at none.
int64_t attention_backward_wgmma_bytes(const Context& ctx, const ops::AttentionBackward& args);
bool attention_backward_wgmma(const Context& ctx, const ops::AttentionBackward& args,
                              const AttentionStatistics& statistics, unsigned char* scratch);

// Makes the statistics.
void attention_statistics(const Context& ctx, const ops::AttentionBackward& args,
                          const AttentionStatistics& statistics);

}  // namespace tigon::cuda
