#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

void softmax_forward(const Context& ctx, const SoftmaxForward& args) {
  const Chain chain(ctx);
  const int64_t columns = args.x.sizes[1];
  const DType wide = Chain::wide(args.x.dtype);
  const OwnedTensor scaled = chain.map("scaled", UnaryOp::copy, args.x, wide, args.scale);
  const OwnedTensor largest = chain.rows("largest", ReduceOp::max, scaled);
  const OwnedTensor shifted = chain.zip("shifted", BinaryOp::sub, scaled, across_columns(largest, columns), wide);
  const OwnedTensor exps = chain.map("exps", UnaryOp::exp, shifted, wide);
  const OwnedTensor sum = chain.rows("sum", ReduceOp::sum, exps);
  chain.zip_to(BinaryOp::div, exps, across_columns(sum, columns), args.y);
}

void softmax_backward(const Context& ctx, const SoftmaxBackward& args) {
  const Chain chain(ctx);
  const int64_t columns = args.y.sizes[1];
  const DType wide = Chain::wide(args.y.dtype);
  const OwnedTensor product = chain.zip("dy_y", BinaryOp::mul, args.dy, args.y, wide);
  const OwnedTensor dot = chain.rows("dot", ReduceOp::sum, product);
  const OwnedTensor centred = chain.zip("centred", BinaryOp::sub, args.dy, across_columns(dot, columns), wide);
  const OwnedTensor slope = chain.map("slope", UnaryOp::copy, args.y, wide, args.scale);
  chain.zip_to(BinaryOp::mul, slope, centred, args.dx);
}

}  // namespace tigon::ops::unfused
