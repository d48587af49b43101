#include <cmath>

#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

// torch's AdamW without foreach or fusion, line by line: one pass over memory for each in-place operation.
void adamw(const Context& ctx, const Adamw& args) {
  const Chain chain(ctx);
  const DType wide = Chain::wide(args.param.dtype);
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  OwnedTensor scaled;
  Tensor grad = args.grad;
  if (args.grad_scale) {  // clip_grad_norm_ and the loss scaler
    Tensor factor = args.grad_scale;
    factor.sizes[0] = grad.sizes[0], factor.strides[0] = 0;
    scaled = chain.zip("scaled_grad", BinaryOp::mul, grad, factor, wide);
    grad = scaled;
  }
  chain.copy_to(args.param, args.param, 1.0 - args.lr * args.weight_decay);
  {
    const OwnedTensor part = chain.map("grad_part", UnaryOp::copy, grad, wide, 1.0 - args.beta1);
    chain.copy_to(args.m, args.m, args.beta1);
    chain.zip_to(BinaryOp::add, args.m, part, args.m);
  }
  {
    const OwnedTensor part = chain.map("grad_squared", UnaryOp::square, grad, wide, std::sqrt(1.0 - args.beta2));
    chain.copy_to(args.v, args.v, args.beta2);
    chain.zip_to(BinaryOp::add, args.v, part, args.v);
  }
  const OwnedTensor denominator = chain.map("denominator", UnaryOp::sqrt, args.v, wide, 1.0 / correction2);
  unary(ctx, {.x = denominator, .y = denominator, .beta = args.eps});
  const OwnedTensor update = chain.zip("update", BinaryOp::div, args.m, denominator, wide);
  chain.copy_to(update, update, args.lr / correction1);
  chain.zip_to(BinaryOp::sub, args.param, update, args.param);
  if (args.param_copy) chain.copy_to(args.param, args.param_copy);
}

}  // namespace tigon::ops::unfused
