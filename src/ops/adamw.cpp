#include "tigon/ops/adamw.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

// Any floating type; in f64 everything is f64, and f64 stands alone.
void check_type(const Check& check, const char* name, const Tensor& t, const Tensor& param) {
  check.floating(name, t);
  if (t.present() && (t.dtype == DType::f64) != (param.dtype == DType::f64))
    check.fail("'" + std::string(name) + "' has the wrong type: f64 does not mix with other types");
}

// A moment: f16 would lose v, whose values are squares.
void check_moment(const Check& check, const char* name, const Tensor& t, const Tensor& param) {
  if (t.dtype == DType::u8) return;
  check_type(check, name, t, param);
  if (t.dtype == DType::f16) check.fail("'" + std::string(name) + "' has the wrong type", "f32, bf16 or u8", "f16");
}

// 8-bit states have scales, in whole blocks; others have none.
void check_scales(const Check& check, const Adamw& args) {
  const bool coded = args.m.dtype == DType::u8;
  if (coded != (args.v.dtype == DType::u8)) {
    check.fail("'m' and 'v' do not go together", "both in 8 bits or neither",
               std::string(to_string(args.m.dtype)) + " and " + std::string(to_string(args.v.dtype)));
  }
  const int64_t blocks = (args.param.sizes[0] + kCodeBlock - 1) / kCodeBlock;
  for (const auto& [name, scale] : {std::pair{"m_scale", &args.m_scale}, {"v_scale", &args.v_scale}}) {
    if (coded) {
      check.tensor(name, *scale, {blocks}, "one for 256 elements");
      check.statistic(name, *scale, args.param);
    } else if (scale->present()) {
      check.fail("'" + std::string(name) + "' belongs to states in 8 bits", "u8 states, or no scales");
    }
  }
  if (coded && args.first_element % kCodeBlock != 0) {
    check.fail("'first_element' cuts a block of 8-bit states", "a multiple of " + std::to_string(kCodeBlock),
               std::to_string(args.first_element));
  }
}

void check_update(const Check& check, const Adamw& args) {
  check.tensor("param", args.param, {-1}, "[n]");
  const int64_t n = args.param.sizes[0];
  check.floating("param", args.param);
  check.tensor("grad", args.grad, {n}, "as param");
  check_type(check, "grad", args.grad, args.param);
  check.tensor("m", args.m, {n}, "as param");
  check_moment(check, "m", args.m, args.param);
  check.tensor("v", args.v, {n}, "as param");
  check_moment(check, "v", args.v, args.param);
  check_scales(check, args);
  check.optional("param_copy", args.param_copy, {n}, "as param");
  check_type(check, "param_copy", args.param_copy, args.param);
  check.optional("grad_scale", args.grad_scale, {1});
  check.statistic("grad_scale", args.grad_scale, args.param);

  const std::pair<const char*, const Tensor*> arrays[] = {{"param", &args.param},
                                                          {"m", &args.m},
                                                          {"v", &args.v},
                                                          {"param_copy", &args.param_copy},
                                                          {"m_scale", &args.m_scale},
                                                          {"v_scale", &args.v_scale},
                                                          {"grad", &args.grad}};
  for (size_t i = 0; i < std::size(arrays); ++i) {
    check.contiguous(arrays[i].first, *arrays[i].second);
    for (size_t j = 0; j < i; ++j) check.apart(arrays[j].first, *arrays[j].second, arrays[i].first, *arrays[i].second);
    if (arrays[i].second != &args.grad) check.apart(arrays[i].first, *arrays[i].second, "grad_scale", args.grad_scale);
  }

  check.finite("lr", args.lr);
  check.in_range("beta1", args.beta1, 0, 1);
  check.in_range("beta2", args.beta2, 0, 1);
  if (args.beta1 == 1 || args.beta2 == 1) check.fail("a beta of 1 never learns", "less than 1");
  check.in_range("eps", args.eps, 0, 1);
  check.finite("weight_decay", args.weight_decay);
  if (args.step < 1) check.fail("'step' is out of range", "1 or more", std::to_string(args.step));
  check.known("rounding", args.rounding, Rounding::stochastic);
  if (args.first_element < 0 || args.first_element > (int64_t{1} << 60))
    check.fail("'first_element' is out of range", "0 to 2^60", std::to_string(args.first_element));
}

}  // namespace

void adamw(const Context& ctx, const Adamw& args) {
  check_update(Check("adamw", ctx), args);
  // Scales are as empty as what they are of.
  route(ctx, args, args.param.dtype, &Backend::adamw, "adamw", {&args.param, &args.m, &args.v, &args.param_copy});
}

void adamw_list(const Context& ctx, const AdamwList& args) {
  const Check check("adamw_list", ctx);
  const Tensor* some = nullptr;  // a parameter with elements
  for (const Adamw& update : args.updates) {
    check_update(check, update);
    if ((update.param.dtype == DType::f64) != (args.updates[0].param.dtype == DType::f64))
      check.fail("'param' has the wrong type: f64 does not mix with other types");
    if (update.param.sizes[0] > 0) some = &update.param;
  }
  if (some != nullptr) route(ctx, args, some->dtype, &Backend::adamw_list, "adamw_list", {some});
}

}  // namespace tigon::ops
