// Hugging Face's apply_rotary_pos_emb: x·cos + rotate_half(x)·sin, with rotate_half(x) and the full-width cos and sin
// in memory of their own.
#include "backend/rope_layout.hpp"
#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

namespace {

// The first and second elements of all pairs of [batch, heads, seq, rotary], as views.
Tensor firsts(const Tensor& t, RopePairing pairing) {
  Tensor view = t;
  view.sizes[3] /= 2;
  if (pairing == RopePairing::interleaved) view.strides[3] *= 2;
  return view;
}
Tensor seconds(const Tensor& t, RopePairing pairing) {
  Tensor view = firsts(t, pairing);
  const int64_t step = pairing == RopePairing::interleaved ? t.strides[3] : t.strides[3] * view.sizes[3];
  view.data = static_cast<std::byte*>(t.data) + step * size_of(t.dtype);
  return view;
}

// A dimension of size 1 repeated without memory.
Tensor expand(const Tensor& t, int dim, int64_t size) {
  Tensor view = t;
  if (t.sizes[dim] != size) view.sizes[dim] = size, view.strides[dim] = 0;
  return view;
}

struct Tables {
  OwnedTensor cos, sin;  // [batch or 1, 1, seq, rotary]
};

// The tables a model's rotary embedding hands to every layer, in q's type. Rotating the unit vector of each pair gives
// them for every way of stating the angles, on every device.
Tables tables_of(const Context& ctx, const Rope& args) {
  const Chain chain(ctx);
  const Tensor q = rope_batched(args.q);
  const int64_t batch = RopeAngles(args).by_batch ? q.sizes[0] : 1, seq = q.sizes[2], rotary = rope_rotary_dim(args);
  const DType dtype = args.q.dtype;
  const OwnedTensor unit = chain.make("unit", dtype, {batch, 1, seq, rotary});
  // Constants without host memory: the sum over no columns is 0.
  const OwnedTensor zero = chain.make("zero", dtype, {1, 1, 1, 1});
  reduce(ctx, {.x = Tensor::contiguous(nullptr, dtype, {1, 0}, ctx.device), .y = zero.view.reshape({1})});
  const Tensor zeros = expand(expand(expand(zero, 0, batch), 2, seq), 3, rotary / 2);
  unary(ctx, {.x = zeros, .y = firsts(unit, args.pairing), .beta = 1.0});
  unary(ctx, {.x = zeros, .y = seconds(unit, args.pairing)});
  Rope rotation = args;
  rotation.q = rotation.q_out = unit;
  rotation.k = rotation.k_out = {};
  rotation.rotary_dim = 0;
  ops::rope_forward(ctx, rotation);
  Tables tables{chain.make("cos", dtype, {batch, 1, seq, rotary}), chain.make("sin", dtype, {batch, 1, seq, rotary})};
  for (const auto& half : {firsts, seconds}) {
    chain.copy_to(firsts(unit, args.pairing), half(tables.cos, args.pairing));
    chain.copy_to(seconds(unit, args.pairing), half(tables.sin, args.pairing));
  }
  return tables;
}

// rotate_half: (a, b) → (−b, a); or, for the gradient, (a, b) → (b, −a).
OwnedTensor rotate_half(const Chain& chain, const Tensor& x, RopePairing pairing, bool backward) {
  OwnedTensor rotated = chain.like("rotated", x, x.dtype);
  chain.copy_to(seconds(x, pairing), firsts(rotated, pairing), backward ? 1.0 : -1.0);
  chain.copy_to(firsts(x, pairing), seconds(rotated, pairing), backward ? -1.0 : 1.0);
  return rotated;
}

void rotate(const Context& ctx, const Rope& args, const Tables& tables, const Tensor& in, const Tensor& out,
            bool backward) {
  if (!in) return;
  const Chain chain(ctx);
  const Tensor x = rope_batched(in), y = rope_batched(out);
  const int64_t rotary = rope_rotary_dim(args), width = x.sizes[3];
  const Tensor part = x.slice(3, 0, rotary);
  const Tensor cos = expand(expand(tables.cos, 0, x.sizes[0]), 1, x.sizes[1]);
  const Tensor sin = expand(expand(tables.sin, 0, x.sizes[0]), 1, x.sizes[1]);
  const OwnedTensor straight = chain.zip("x_cos", BinaryOp::mul, part, cos, x.dtype);
  OwnedTensor turned;
  if (backward) {
    const OwnedTensor scaled = chain.zip("x_sin", BinaryOp::mul, part, sin, x.dtype);
    turned = rotate_half(chain, scaled, args.pairing, true);
  } else {
    const OwnedTensor rotated = rotate_half(chain, part, args.pairing, false);
    turned = chain.zip("x_sin", BinaryOp::mul, rotated, sin, x.dtype);
  }
  chain.zip_to(BinaryOp::add, straight, turned, y.slice(3, 0, rotary));
  if (rotary < width && x.data != y.data) chain.copy_to(x.slice(3, rotary, width), y.slice(3, rotary, width));
}

void rope(const Context& ctx, const Rope& args, bool backward) {
  const Tables tables = tables_of(ctx, args);
  rotate(ctx, args, tables, args.q, args.q_out, backward);
  rotate(ctx, args, tables, args.k, args.k_out, backward);
}

}  // namespace

void rope_forward(const Context& ctx, const Rope& args) { rope(ctx, args, false); }

void rope_backward(const Context& ctx, const Rope& args) { rope(ctx, args, true); }

}  // namespace tigon::ops::unfused
