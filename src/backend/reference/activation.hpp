#pragma once

#include <cmath>

// The activations and their derivatives, in f64.
namespace tigon::reference {

struct Activation {
  double value;
  double slope;
};

inline Activation silu(double x) {
  const double s = 1.0 / (1.0 + std::exp(-x));
  return {x * s, s * (1.0 + x * (1.0 - s))};
}

inline Activation gelu_tanh(double x) {
  constexpr double kSqrt2OverPi = 0.7978845608028654;
  const double t = std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x));
  return {0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kSqrt2OverPi * (1.0 + 3 * 0.044715 * x * x)};
}

inline Activation gelu_erf(double x) {
  constexpr double kInvSqrt2Pi = 0.3989422804014327;
  const double cdf = 0.5 * std::erfc(-x / std::sqrt(2.0));
  return {x * cdf, cdf + x * kInvSqrt2Pi * std::exp(-0.5 * x * x)};
}

}  // namespace tigon::reference
