#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tigon {

// Which of the likely tokens comes next. In this order, as Transformers applies them: the logits over the temperature,
// the top_k largest of them, and of these the fewest whose probabilities come to top_p.
struct SamplingOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  uint64_t seed = 0;
};

// Throws Error where a value makes no sense.
void check_sampling(const SamplingOptions& options);

// The token for place `position` of sequence `sequence`: the same for the same seed, whatever else is in the batch. The
// most likely one is the first of the largest logits.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, int64_t sequence, int64_t position);

}  // namespace tigon
