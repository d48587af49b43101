#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

void layernorm_forward(const Context& ctx, const LayernormForward& args, Tape& tape) {
  const Chain chain(ctx);
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const DType wide = Chain::wide(args.x.dtype);
  OwnedTensor rstd, normal;
  {
    const OwnedTensor x = chain.cast("x_f32", args.x, wide);
    const OwnedTensor mean = chain.rows("mean", ReduceOp::mean, x);
    if (args.mean) chain.copy_to(mean, args.mean);
    const OwnedTensor centered = chain.zip("centered", BinaryOp::sub, x, across_columns(mean, hidden), wide);
    const OwnedTensor squares = chain.map("squares", UnaryOp::square, centered, wide);
    const OwnedTensor variance = chain.rows("variance", ReduceOp::mean, squares);
    rstd = chain.map("rstd", UnaryOp::rsqrt, variance, wide, 1.0, args.eps);
    normal = chain.zip("normal", BinaryOp::mul, centered, across_columns(rstd, hidden), wide);
  }
  if (args.rstd) chain.copy_to(rstd, args.rstd);
  if (args.weight && args.bias) {
    const OwnedTensor scaled = chain.zip("scaled", BinaryOp::mul, normal, across_rows(args.weight, tokens), wide);
    chain.zip_to(BinaryOp::add, scaled, across_rows(args.bias, tokens), args.y);
  } else if (args.weight) {
    chain.zip_to(BinaryOp::mul, normal, across_rows(args.weight, tokens), args.y);
  } else if (args.bias) {
    chain.zip_to(BinaryOp::add, normal, across_rows(args.bias, tokens), args.y);
  } else {
    chain.copy_to(normal, args.y);
  }
  tape.push_back(std::move(normal));
  tape.push_back(std::move(rstd));
}

void layernorm_backward(const Context& ctx, const LayernormBackward& args, Tape& tape) {
  const Chain chain(ctx);
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const DType wide = Chain::wide(args.x.dtype);
  const Tensor normal = tape[0], rstd = tape[1];
  if (args.dweight) {
    const OwnedTensor product = chain.zip("dy_normal", BinaryOp::mul, args.dy, normal, wide);
    chain.sum_over_rows(product, args.dweight, args.accumulate_dweight);
  }
  if (args.dbias) chain.sum_over_rows(args.dy, args.dbias, args.accumulate_dweight);
  if (args.dx) {
    const OwnedTensor m = args.weight ? chain.zip("m", BinaryOp::mul, args.dy, across_rows(args.weight, tokens), wide)
                                      : chain.cast("m", args.dy, wide);
    OwnedTensor slope;
    {
      const OwnedTensor product = chain.zip("m_normal", BinaryOp::mul, m, normal, wide);
      slope = chain.rows("slope", ReduceOp::mean, product);
    }
    const OwnedTensor mean = chain.rows("mean_m", ReduceOp::mean, m);
    const OwnedTensor centered = chain.zip("centered", BinaryOp::sub, m, across_columns(mean, hidden), wide);
    const OwnedTensor through_norm =
        chain.zip("through_norm", BinaryOp::mul, normal, across_columns(slope, hidden), wide);
    const OwnedTensor difference = chain.zip("difference", BinaryOp::sub, centered, through_norm, wide);
    chain.zip_to(BinaryOp::mul, difference, across_columns(rstd, hidden), args.dx);
  }
  tape.clear();
}

}  // namespace tigon::ops::unfused
