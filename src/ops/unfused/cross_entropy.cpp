#include "ops/check.hpp"
#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

namespace {

// Tape of cross_entropy: what autograd keeps.
enum Kept : size_t { kLogp, kLse, kEntropyFactor, kZFactor, kTargetFactor, kTanh };

Tensor as_row(const Tensor& vector) {
  Tensor t = vector;
  t.rank = 2;
  t.sizes[0] = 1, t.strides[0] = vector.sizes[0];
  t.sizes[1] = vector.sizes[0], t.strides[1] = vector.strides[0];
  return t;
}

Tensor column(const Tensor& t, int64_t j) {
  Tensor c = t.slice(1, j, j + 1);
  c.rank = 1;
  return c;
}

// Σ of a vector, and one value seen as a vector of `count` without memory.
OwnedTensor total(const Chain& chain, const char* name, const Tensor& vector) {
  return chain.rows(name, ReduceOp::sum, as_row(vector));
}
Tensor repeated(const Tensor& one, int64_t count) {
  Tensor t = one;
  t.sizes[0] = count, t.strides[0] = 0;
  return t;
}

}  // namespace

// F.cross_entropy on f32 logits: log_softmax [tokens, V] is kept, the loss is gathered from it. As in an eager
// framework, a batch in which every token is ignored has the mean 0/0.
void cross_entropy_forward(const Context& ctx, const CrossEntropyForward& args, Tape& tape) {
  const Check check("unfused cross_entropy_forward", ctx);
  if (args.out.accuracy || args.out.predicted) check.fail("there is no chain for accuracy and predicted");
  if (args.options.ignore_index >= 0) check.fail("the chain takes only a negative ignore_index");
  const Chain chain(ctx);
  const CrossEntropyOptions& options = args.options;
  const int64_t tokens = args.logits.sizes[0], vocab = args.logits.sizes[1];
  const DType wide = Chain::wide(args.logits.dtype);
  const double smoothing = options.label_smoothing;

  OwnedTensor logits_f32, tanh, capped;
  Tensor x = args.logits;
  if (x.dtype != wide) x = logits_f32 = chain.cast("logits_f32", x, wide);
  if (options.softcap > 0) {
    tanh = chain.map("tanh", UnaryOp::tanh, x, wide, 1.0 / options.softcap);
    x = capped = chain.map("capped", UnaryOp::copy, tanh, wide, options.softcap);
  }
  // log_softmax through one [tokens, V] buffer, as the eager kernel does.
  OwnedTensor logp = chain.like("logp", x, wide);
  OwnedTensor lse;
  {
    const OwnedTensor largest = chain.rows("largest", ReduceOp::max, x);
    chain.zip_to(BinaryOp::sub, x, across_columns(largest, vocab), logp);
    unary(ctx, {.op = UnaryOp::exp, .x = logp, .y = logp});
    const OwnedTensor sum = chain.rows("sum", ReduceOp::sum, logp);
    const OwnedTensor log_sum = chain.map("log_sum", UnaryOp::log, sum, wide);
    chain.zip_to(BinaryOp::sub, x, across_columns(largest, vocab), logp);
    chain.zip_to(BinaryOp::sub, logp, across_columns(log_sum, vocab), logp);
    lse = chain.zip("lse", BinaryOp::add, largest, log_sum, wide);
  }
  logits_f32.reset();
  capped.reset();

  // 1 for counted tokens and 0 for ignored ones: ones gathered by target.
  const OwnedTensor ones = chain.map("ones", UnaryOp::exp, column(args.logits, 0), wide, 0.0);
  const OwnedTensor counted = chain.make("counted", wide, {tokens});
  gather(ctx, {.x = across_columns(ones, vocab), .index = args.target, .y = counted});
  if (args.out.lse) chain.zip_to(BinaryOp::mul, lse, counted, args.out.lse);
  OwnedTensor target_weight = chain.cast("target_weight", counted, wide);
  if (args.class_weight) {
    gather(ctx, {.x = across_rows(args.class_weight, tokens), .index = args.target, .y = target_weight});
  }
  // The factors of the two parts of the loss: token scale and reduction.
  OwnedTensor entropy_factor = chain.cast("entropy_factor", counted, wide);
  OwnedTensor z_factor = chain.cast("z_factor", counted, wide);
  if (args.token_scale) {
    chain.zip_to(BinaryOp::mul, entropy_factor, args.token_scale, entropy_factor);
    chain.zip_to(BinaryOp::mul, z_factor, args.token_scale, z_factor);
  }
  if (options.reduction == Reduction::mean) {
    const OwnedTensor weights = total(chain, "weights", target_weight);
    const OwnedTensor count = total(chain, "count", counted);
    chain.zip_to(BinaryOp::div, entropy_factor, repeated(weights, tokens), entropy_factor);
    chain.zip_to(BinaryOp::div, z_factor, repeated(count, tokens), z_factor);
  }

  const OwnedTensor picked = chain.make("picked", wide, {tokens});
  gather(ctx, {.x = logp, .index = args.target, .y = picked});
  const OwnedTensor weighted = chain.zip("weighted", BinaryOp::mul, picked, target_weight, wide);
  OwnedTensor entropy = chain.map("entropy", UnaryOp::copy, weighted, wide, -(1.0 - smoothing));
  if (smoothing > 0) {
    OwnedTensor all;
    if (args.class_weight) {
      const OwnedTensor product =
          chain.zip("weighted_logp", BinaryOp::mul, logp, across_rows(args.class_weight, tokens), wide);
      all = chain.rows("all", ReduceOp::sum, product);
    } else {
      all = chain.rows("all", ReduceOp::sum, logp);
    }
    const OwnedTensor spread = chain.map("spread", UnaryOp::copy, all, wide, -smoothing / static_cast<double>(vocab));
    chain.zip_to(BinaryOp::add, entropy, spread, entropy);
  }
  const OwnedTensor loss = chain.zip("token_loss", BinaryOp::mul, entropy, entropy_factor, wide);
  const OwnedTensor squares = chain.map("lse2", UnaryOp::square, lse, wide);
  const OwnedTensor z_part = chain.zip("z_part", BinaryOp::mul, squares, z_factor, wide);
  const OwnedTensor z_loss = chain.map("token_z_loss", UnaryOp::copy, z_part, wide, options.z_loss);
  if (options.z_loss != 0) chain.zip_to(BinaryOp::add, loss, z_loss, loss);
  const auto write = [&](const Tensor& values, const Tensor& out) {
    if (!out) return;
    if (options.reduction == Reduction::none) {
      chain.copy_to(values, out);
    } else {
      chain.copy_to(total(chain, "reduced", values), out);
    }
  };
  write(loss, args.out.loss);
  write(z_loss, args.out.z_loss);

  chain.zip_to(BinaryOp::mul, target_weight, entropy_factor, target_weight);
  tape.push_back(std::move(logp));
  tape.push_back(std::move(lse));
  tape.push_back(std::move(entropy_factor));
  tape.push_back(std::move(z_factor));
  tape.push_back(std::move(target_weight));
  tape.push_back(std::move(tanh));
}

void cross_entropy_backward(const Context& ctx, const CrossEntropyBackward& args, Tape& tape) {
  const Chain chain(ctx);
  const CrossEntropyOptions& options = args.options;
  const int64_t tokens = args.logits.sizes[0], vocab = args.logits.sizes[1];
  const DType wide = Chain::wide(args.logits.dtype);
  const Tensor logp = tape[kLogp], lse = tape[kLse], tanh = tape[kTanh];
  const Tensor dloss = args.dloss.sizes[0] == tokens ? args.dloss : repeated(args.dloss, tokens);
  const double smoothing = options.label_smoothing;

  // Gradient of logp: the smoothing's share everywhere (else zeros), and the target's entry.
  const OwnedTensor entropy = chain.zip("d_entropy", BinaryOp::mul, dloss, tape[kEntropyFactor], wide);
  OwnedTensor dlogp =
      chain.map("dlogp", UnaryOp::copy, across_columns(entropy, vocab), wide, -smoothing / static_cast<double>(vocab));
  if (smoothing > 0 && args.class_weight) {
    chain.zip_to(BinaryOp::mul, dlogp, across_rows(args.class_weight, tokens), dlogp);
  }
  {
    const OwnedTensor product = chain.zip("d_picked", BinaryOp::mul, dloss, tape[kTargetFactor], wide);
    const OwnedTensor picked = chain.map("d_picked", UnaryOp::copy, product, wide, -(1.0 - smoothing));
    scatter_add(ctx, {.x = picked, .index = args.target, .y = dlogp});
  }
  // Through log_softmax: dx' = dlogp − softmax·Σ dlogp, and the z-loss joins with softmax·2z·lse.
  OwnedTensor slope = chain.rows("dlogp_sum", ReduceOp::sum, dlogp);
  if (options.z_loss != 0) {
    const OwnedTensor z = chain.zip("d_z", BinaryOp::mul, dloss, tape[kZFactor], wide);
    const OwnedTensor product = chain.zip("d_z_lse", BinaryOp::mul, z, lse, wide);
    const OwnedTensor d_lse = chain.map("d_lse", UnaryOp::copy, product, wide, 2.0 * options.z_loss);
    chain.zip_to(BinaryOp::sub, slope, d_lse, slope);
  }
  {
    const OwnedTensor softmax = chain.map("softmax", UnaryOp::exp, logp, wide);
    chain.zip_to(BinaryOp::mul, softmax, across_columns(slope, vocab), softmax);
    if (!tanh) {
      chain.zip_to(BinaryOp::sub, dlogp, softmax, args.dlogits);
    } else {
      chain.zip_to(BinaryOp::sub, dlogp, softmax, dlogp);
    }
  }
  if (tanh) chain.zip_to(BinaryOp::tanh_grad, dlogp, tanh, args.dlogits);
  tape.clear();
}

}  // namespace tigon::ops::unfused
