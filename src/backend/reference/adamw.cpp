#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/dynamic_map.hpp"
#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

// A moment of either kind, element by element: f64, or 8 bits with a scale for each block.
class Moment {
 public:
  Moment(const Tensor& values, const Tensor& scale, bool has_sign)
      : values_(values), scale_(scale), map_(dynamic_map(has_sign)) {}

  bool coded() const { return values_.dtype == DType::u8; }
  double get(int64_t e) const {
    if (!coded()) return at(values_, e);
    return static_cast<double>(map_[values_.as<uint8_t>()[e]]) * at(scale_, e / ops::kCodeBlock);
  }
  // Of one block, from element `first` on.
  void put(int64_t first, const std::vector<double>& block) {
    if (!coded()) {
      for (size_t i = 0; i < block.size(); ++i) at(values_, first + static_cast<int64_t>(i)) = block[i];
      return;
    }
    double scale = 0;
    for (const double value : block) scale = std::max(scale, std::abs(value));
    if (scale < static_cast<double>(std::numeric_limits<float>::min())) scale = 0;
    at(scale_, first / ops::kCodeBlock) = scale;
    for (size_t i = 0; i < block.size(); ++i)
      values_.as<uint8_t>()[first + static_cast<int64_t>(i)] = nearest(scale > 0 ? block[i] / scale : 0);
  }

 private:
  uint8_t nearest(double value) const {
    size_t best = 0;
    const auto distance = [&](size_t code) { return std::abs(value - static_cast<double>(map_[code])); };
    for (size_t code = 1; code < map_.size(); ++code) {
      if (distance(code) < distance(best)) best = code;
    }
    return static_cast<uint8_t>(best);
  }

  Tensor values_, scale_;
  DynamicMap map_;
};

}  // namespace

// f64 needs no rounding, so args.rounding has nothing to say here.
void adamw(const Context& ctx, const ops::Adamw& args) {
  if (ctx.measuring()) return;
  const double scale = args.grad_scale ? at(args.grad_scale, 0) : 1.0;
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  Moment moment1(args.m, args.m_scale, true), moment2(args.v, args.v_scale, false);
  const int64_t n = args.param.sizes[0];
  for (int64_t first = 0; first < n; first += ops::kCodeBlock) {
    std::vector<double> ms, vs;
    for (int64_t e = first; e < std::min(n, first + ops::kCodeBlock); ++e) {
      const double g = at(args.grad, e) * scale;
      const double m = args.beta1 * moment1.get(e) + (1 - args.beta1) * g;
      const double v = args.beta2 * moment2.get(e) + (1 - args.beta2) * g * g;
      double& param = at(args.param, e);
      const double update = m / correction1 / (std::sqrt(v / correction2) + args.eps);
      param -= args.lr * (update + args.weight_decay * param);
      if (args.param_copy) at(args.param_copy, e) = param;
      const bool keep = !moment1.coded() || (std::isfinite(m) && std::isfinite(v));
      ms.push_back(keep ? m : 0);
      vs.push_back(keep ? v : 0);
    }
    moment1.put(first, ms);
    moment2.put(first, vs);
  }
}

void adamw_list(const Context& ctx, const ops::AdamwList& args) {
  for (const ops::Adamw& update : args.updates) reference::adamw(ctx, update);
}

}  // namespace tigon::reference
