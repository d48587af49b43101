#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/core/dtype.hpp"
#include "tigon/ops/adamw.hpp"

namespace tigon {

// Loss scaling for f16, whose gradients would underflow. The scale halves after `hysteresis` overflowed steps and
// doubles after `window` steps without one.
struct LossScaleRule {
  bool dynamic = false;
  double initial = 1.0;
  int64_t window = 1000;
  int64_t hysteresis = 1;
};

// Which type everything is kept in. Arithmetic is f32 throughout.
struct Precision {
  std::string name = "fp32";
  DType weight = DType::f32;  // and activations
  DType grad = DType::f32;
  std::optional<DType> master{};  // a wider copy that the optimizer updates
  DType m = DType::f32;           // and v, where the optimizer keeps them in floating point
  DType v = DType::f32;
  ops::Rounding rounding = ops::Rounding::nearest;  // of what the optimizer stores in 16 bits
  LossScaleRule loss_scale{};
};

// fp32: 16 bytes a parameter. bf16: f32 master, m and v, 16 bytes. bf16-sr: bf16 everywhere with stochastic rounding, 8
// bytes. fp16: as bf16 with a dynamic loss scale.
Precision precision_from_string(std::string_view name);
std::vector<std::string> precision_names();

// The dynamic scale of one run.
class LossScale {
 public:
  explicit LossScale(const LossScaleRule& rule) : rule_(rule), scale_(rule.initial) {}

  double scale() const noexcept { return scale_; }
  int64_t skipped() const noexcept { return skipped_; }
  // After each step: whether its gradients were finite. Returns that.
  bool update(bool finite);

  // What a checkpoint keeps.
  struct State {
    double scale = 1.0;
    int64_t good_steps = 0, bad_steps = 0, skipped = 0;
  };
  State state() const { return {scale_, good_steps_, bad_steps_, skipped_}; }
  void restore(const State& state);

 private:
  LossScaleRule rule_;
  double scale_;
  int64_t good_steps_ = 0, bad_steps_ = 0, skipped_ = 0;
};

}  // namespace tigon
