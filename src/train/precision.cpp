#include "tigon/train/precision.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

const std::vector<Precision>& presets() {
  static const std::vector<Precision> list = {
      {.name = "fp32"},
      {.name = "bf16", .weight = DType::bf16, .grad = DType::bf16, .master = DType::f32},
      {.name = "bf16-sr",
       .weight = DType::bf16,
       .grad = DType::bf16,
       .m = DType::bf16,
       .v = DType::bf16,
       .rounding = ops::Rounding::stochastic},
      {.name = "fp16",
       .weight = DType::f16,
       .grad = DType::f16,
       .master = DType::f32,
       .loss_scale = {.dynamic = true, .initial = 65536.0, .window = 1000, .hysteresis = 1}},
  };
  return list;
}

}  // namespace

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Precision& preset : presets()) names.push_back(preset.name);
  return names;
}

Precision precision_from_string(std::string_view name) {
  std::string known;
  for (const Precision& preset : presets()) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  throw Error(ErrorCode::invalid_argument, {.where = "precision",
                                            .what = "there is no such precision",
                                            .expected = known,
                                            .got = "'" + std::string(name) + "'"});
}

bool LossScale::update(bool finite) {
  if (!rule_.dynamic) return finite;
  if (!finite) {
    ++skipped_;
    good_steps_ = 0;
    if (++bad_steps_ >= rule_.hysteresis) {
      scale_ = std::max(1.0, scale_ / 2);
      bad_steps_ = 0;
    }
  } else if (++good_steps_ == rule_.window) {
    scale_ = std::min(scale_ * 2, 0x1p60);
    good_steps_ = 0;
    bad_steps_ = 0;
  }
  return finite;
}

void LossScale::restore(const State& state) {
  scale_ = state.scale;
  good_steps_ = state.good_steps;
  bad_steps_ = state.bad_steps;
  skipped_ = state.skipped;
}

}  // namespace tigon
