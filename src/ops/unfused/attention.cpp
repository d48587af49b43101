#include <cmath>
#include <limits>

#include "ops/unfused/chain.hpp"
#include "tigon/core/error.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon::ops::unfused {

namespace {

// One head of a [batch, seq, heads, D] tensor as a matrix [seq, D].
Tensor head_of(const Tensor& t, int64_t batch, int64_t head) {
  Tensor m = t.slice(0, batch, batch + 1).slice(2, head, head + 1);
  m.rank = 2;
  m.sizes[0] = t.sizes[1], m.strides[0] = t.strides[1];
  m.sizes[1] = t.sizes[3], m.strides[1] = t.strides[3];
  return m;
}

// Matrix i of a [count, seq, seq] tensor.
Tensor matrix_of(const Tensor& t, int64_t i) { return t.slice(0, i, i + 1).reshape({t.sizes[1], t.sizes[2]}); }

// The same elements as rows.
Tensor rows_of(const Tensor& t) { return t.reshape({t.sizes[0] * t.sizes[1], t.sizes[2]}); }

// f(batch, head, kv_head, index of the head's score matrix)
template <class F>
void for_heads(const Tensor& q, const Tensor& k, const F& f) {
  const int64_t group = q.sizes[2] / k.sizes[2];
  for (int64_t b = 0; b < q.sizes[0]; ++b) {
    for (int64_t h = 0; h < q.sizes[2]; ++h) f(b, h, h / group, b * q.sizes[2] + h);
  }
}

double scale_of(double scale, const Tensor& q) {
  return scale != 0 ? scale : 1.0 / std::sqrt(static_cast<double>(q.sizes[3]));
}

// [seq, seq]: 0 where a query sees a key, −inf behind it.
OwnedTensor causal_mask(const Context& ctx, const Chain& chain, DType dtype, int64_t seq) {
  OwnedTensor mask = chain.make("mask", dtype, {seq, seq});
  unary(ctx, {.x = mask, .y = mask, .alpha = 0});
  for (int64_t i = 0; i + 1 < seq; ++i) {
    const Tensor behind = mask.view.slice(0, i, i + 1).slice(1, i + 1, seq);
    unary(ctx, {.x = behind, .y = behind, .alpha = 0, .beta = -std::numeric_limits<double>::infinity()});
  }
  return mask;
}

}  // namespace

// Hugging Face's eager_attention_forward: all scores at once, scaled, masked, softmax, times v. A product P·V is the
// dx of a linear layer with weight V. The lse is not reported: eager code has none.
void attention_forward(const Context& ctx, const AttentionForward& args, Tape& tape) {
  if (args.starts) {
    throw Error(ErrorCode::unsupported,
                {.where = "unfused attention_forward", .what = "attention within documents has no unfused form"});
  }
  const Chain chain(ctx);
  const int64_t seq = args.q.sizes[1], matrices = args.q.sizes[0] * args.q.sizes[2];
  const DType dtype = args.q.dtype;
  OwnedTensor scores = chain.make("scores", dtype, {matrices, seq, seq});
  for_heads(args.q, args.k, [&](int64_t b, int64_t h, int64_t kvh, int64_t i) {
    linear_forward(ctx, {.x = head_of(args.q, b, h), .weight = head_of(args.k, b, kvh), .y = matrix_of(scores, i)});
  });
  scores = chain.map("scaled_scores", UnaryOp::copy, scores, dtype, scale_of(args.scale, args.q));
  if (args.causal) {
    const OwnedTensor mask = causal_mask(ctx, chain, Chain::wide(dtype), seq);
    Tensor repeated = mask.view.reshape({1, seq, seq});
    repeated.sizes[0] = matrices, repeated.strides[0] = 0;
    scores = chain.zip("masked_scores", BinaryOp::add, scores, repeated, dtype);
  }
  OwnedTensor probabilities = chain.like("probabilities", scores, dtype);
  ops::softmax_forward(ctx, {.x = rows_of(scores), .y = rows_of(probabilities)});
  scores.reset();
  for_heads(args.q, args.k, [&](int64_t b, int64_t h, int64_t kvh, int64_t i) {
    linear_backward(
        ctx, {.dy = matrix_of(probabilities, i), .weight = head_of(args.v, b, kvh), .dx = head_of(args.o, b, h)});
  });
  tape.push_back(std::move(probabilities));
}

void attention_backward(const Context& ctx, const AttentionBackward& args, Tape& tape) {
  const Chain chain(ctx);
  const int64_t group = args.q.sizes[2] / args.k.sizes[2];
  const DType dtype = args.q.dtype;
  const Tensor probabilities = tape[0];
  OwnedTensor gradient = chain.like("dprobabilities", probabilities, dtype);
  // A key-value head's gradient is the sum over the query heads that share it.
  const auto add_head = [&](const Tensor& dy, const Tensor& x, const Tensor& total, bool first) {
    if (first) return linear_backward(ctx, {.dy = dy, .x = x, .dweight = total});
    const OwnedTensor part = chain.like("head_gradient", total, dtype);
    linear_backward(ctx, {.dy = dy, .x = x, .dweight = part});
    chain.zip_to(BinaryOp::add, total, part, total);
  };
  for_heads(args.q, args.k, [&](int64_t b, int64_t h, int64_t kvh, int64_t i) {
    const Tensor dout = head_of(args.dout, b, h);
    add_head(matrix_of(probabilities, i), dout, head_of(args.dv, b, kvh), h % group == 0);
    linear_forward(ctx, {.x = dout, .weight = head_of(args.v, b, kvh), .y = matrix_of(gradient, i)});
  });
  OwnedTensor dscores = chain.like("dscores", gradient, dtype);
  ops::softmax_backward(ctx, {.dy = rows_of(gradient), .y = rows_of(probabilities), .dx = rows_of(dscores)});
  gradient.reset();
  tape.clear();
  dscores = chain.map("scaled_dscores", UnaryOp::copy, dscores, dtype, scale_of(args.scale, args.q));
  for_heads(args.q, args.k, [&](int64_t b, int64_t h, int64_t kvh, int64_t i) {
    const Tensor ds = matrix_of(dscores, i);
    linear_backward(ctx, {.dy = ds, .weight = head_of(args.k, b, kvh), .dx = head_of(args.dq, b, h)});
    add_head(ds, head_of(args.q, b, h), head_of(args.dk, b, kvh), h % group == 0);
  });
}

}  // namespace tigon::ops::unfused
