#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

// Hugging Face's LlamaRMSNorm, line by line: cast to f32, square, mean, rsqrt, multiply, cast back, weight.
void rmsnorm_forward(const Context& ctx, const RmsnormForward& args, Tape& tape) {
  const Chain chain(ctx);
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const DType wide = Chain::wide(args.x.dtype);
  OwnedTensor x = chain.cast("x_f32", args.x, wide);
  OwnedTensor rstd;
  {
    const OwnedTensor squares = chain.map("squares", UnaryOp::square, x, wide);
    const OwnedTensor mean = chain.rows("mean", ReduceOp::mean, squares);
    rstd = chain.map("rstd", UnaryOp::rsqrt, mean, wide, 1.0, args.eps);
  }
  OwnedTensor normal = chain.zip("normal", BinaryOp::mul, x, across_columns(rstd, hidden), wide);
  if (args.casting == NormCasting::llama) normal = chain.cast("normal_cast", normal, args.x.dtype);
  if (args.rstd) chain.copy_to(rstd, args.rstd);
  if (args.weight) {
    const OwnedTensor gain = chain.map("gain", UnaryOp::copy, args.weight, args.weight.dtype, 1.0, args.offset);
    chain.zip_to(BinaryOp::mul, normal, across_rows(gain, tokens), args.y);
  } else {
    chain.copy_to(normal, args.y);
  }
  tape.push_back(std::move(x));
  tape.push_back(std::move(normal));
  tape.push_back(std::move(rstd));
}

void rmsnorm_backward(const Context& ctx, const RmsnormBackward& args, Tape& tape) {
  const Chain chain(ctx);
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const DType wide = Chain::wide(args.x.dtype);
  const Tensor x = tape[0], normal = tape[1], rstd = tape[2];
  if (args.dweight) {
    const OwnedTensor product = chain.zip("dy_normal", BinaryOp::mul, args.dy, normal, wide);
    chain.sum_over_rows(product, args.dweight, args.accumulate_dweight);
  }
  if (args.dx) {
    OwnedTensor m = chain.cast("m", args.dy, wide);
    if (args.weight) {
      const OwnedTensor gain = chain.map("gain", UnaryOp::copy, args.weight, wide, 1.0, args.offset);
      m = chain.zip("m", BinaryOp::mul, args.dy, across_rows(gain, tokens), wide);
    }
    // d rstd = Σ m·x, then back through rsqrt and the mean of squares.
    OwnedTensor slope;
    {
      const OwnedTensor product = chain.zip("m_x", BinaryOp::mul, m, x, wide);
      const OwnedTensor drstd = chain.rows("drstd", ReduceOp::mean, product);
      const OwnedTensor square = chain.map("rstd2", UnaryOp::square, rstd, wide);
      const OwnedTensor cube = chain.zip("rstd3", BinaryOp::mul, square, rstd, wide);
      slope = chain.zip("slope", BinaryOp::mul, drstd, cube, wide);
    }
    const OwnedTensor direct = chain.zip("direct", BinaryOp::mul, m, across_columns(rstd, hidden), wide);
    const OwnedTensor through_norm = chain.zip("through_norm", BinaryOp::mul, x, across_columns(slope, hidden), wide);
    chain.zip_to(BinaryOp::sub, direct, through_norm, args.dx);
  }
  tape.clear();
}

}  // namespace tigon::ops::unfused
