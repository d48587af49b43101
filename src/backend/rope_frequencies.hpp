#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "tigon/ops/rope.hpp"

// The angles of rope, for every backend and for a model that fills tables: angle = float(position)·frequency, in f32.
// Each step is rounded to f32 where Hugging Face's modeling_rope_utils rounds it: at position 100 000 the last bit of a
// frequency turns a vector visibly.
namespace tigon {

namespace detail {

// theta^(2d/dim): one over the plain frequency.
inline float rope_wavelength(double theta, int64_t d, int64_t dim) {
  const float exponent = static_cast<float>(2 * d) / static_cast<float>(dim);
  return static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
}

// llama3: long waves are stretched by `factor`, short ones kept, those between blended.
inline float rope_llama3(const ops::RopeScaling& scaling, float frequency) {
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  const auto factor = static_cast<float>(scaling.factor);
  const auto original = static_cast<float>(scaling.original_max_position);
  if (wavelength < static_cast<float>(scaling.original_max_position / scaling.high_freq_factor)) return frequency;
  if (wavelength > static_cast<float>(scaling.original_max_position / scaling.low_freq_factor)) {
    return frequency / factor;
  }
  const float smooth = (original / wavelength - static_cast<float>(scaling.low_freq_factor)) /
                       static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

// yarn: the pair whose wave turns `rotations` times within the original context, as a real number.
inline double rope_yarn_pair(const ops::RopeScaling& scaling, double theta, int64_t dim, double rotations) {
  const double turns = scaling.original_max_position / (rotations * 2 * std::numbers::pi);
  return static_cast<double>(dim) * std::log(turns) / (2 * std::log(theta));
}

}  // namespace detail

// out[d] for d in [0, rotary_dim/2).
inline void rope_inverse_frequencies(const ops::RopeScaling& scaling, double theta, int64_t rotary_dim, float* out) {
  using enum ops::RopeScalingKind;
  const auto factor = static_cast<float>(scaling.factor);
  float low = 0, high = 0;
  if (scaling.kind == yarn) {
    low = static_cast<float>(
        std::max(0.0, std::floor(detail::rope_yarn_pair(scaling, theta, rotary_dim, scaling.beta_fast))));
    high =
        static_cast<float>(std::min(static_cast<double>(rotary_dim - 1),
                                    std::ceil(detail::rope_yarn_pair(scaling, theta, rotary_dim, scaling.beta_slow))));
    if (low == high) high += 0.001f;
  }
  for (int64_t d = 0; d < rotary_dim / 2; ++d) {
    const float wavelength = detail::rope_wavelength(theta, d, rotary_dim);
    const float plain = 1.0f / wavelength;
    switch (scaling.kind) {
      case none: out[d] = plain; break;
      case linear: out[d] = plain / factor; break;
      case llama3: out[d] = detail::rope_llama3(scaling, plain); break;
      case yarn: {
        const float keep = 1.0f - std::clamp((static_cast<float>(d) - low) / (high - low), 0.0f, 1.0f);
        out[d] = 1.0f / (factor * wavelength) * (1.0f - keep) + plain * keep;
        break;
      }
    }
  }
}

// What cos and sin are multiplied with.
inline double rope_attention_factor(const ops::RopeScaling& scaling) {
  if (scaling.kind != ops::RopeScalingKind::yarn) return 1.0;
  if (scaling.attention_factor != 0.0) return scaling.attention_factor;
  return scaling.factor <= 1.0 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
}

}  // namespace tigon
