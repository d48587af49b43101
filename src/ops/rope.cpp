#include "tigon/ops/rope.hpp"

#include "backend/rope_layout.hpp"
#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

// [tokens, any, D] or [batch, any, seq, D], as q.
void check_heads(const Check& check, const char* name, const Tensor& t, const Tensor& q, int64_t heads) {
  if (q.rank == 3) {
    check.tensor(name, t, {q.sizes[0], heads, q.sizes[2]}, "[tokens, heads, D] as q");
  } else {
    check.tensor(name, t, {q.sizes[0], heads, q.sizes[2], q.sizes[3]}, "[batch, heads, seq, D] as q");
  }
  check.same_dtype(name, t, "q", q);
}

void check_scaling(const Check& check, const RopeScaling& scaling, double theta) {
  constexpr double kTiny = 1e-6, kHuge = 1e12;
  check.known("scaling.kind", scaling.kind, RopeScalingKind::yarn);
  if (scaling.kind == RopeScalingKind::none) return;
  check.in_range("scaling.factor", scaling.factor, kTiny, kHuge);
  if (scaling.kind == RopeScalingKind::linear) return;
  check.in_range("scaling.original_max_position", scaling.original_max_position, 1, kHuge);
  if (scaling.kind == RopeScalingKind::llama3) {
    check.in_range("scaling.low_freq_factor", scaling.low_freq_factor, kTiny, kHuge);
    check.in_range("scaling.high_freq_factor", scaling.high_freq_factor, kTiny, kHuge);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      check.fail("'scaling.high_freq_factor' is too small", "more than low_freq_factor");
    }
  } else {
    check.in_range("scaling.beta_fast", scaling.beta_fast, kTiny, kHuge);
    check.in_range("scaling.beta_slow", scaling.beta_slow, kTiny, kHuge);
    check.in_range("scaling.attention_factor", scaling.attention_factor, 0, kHuge);
    if (theta <= 1) check.fail("'theta' is too small for yarn", "more than 1");
  }
}

void check_tables(const Check& check, const Rope& args, int64_t rotary) {
  const Tensor q = rope_batched(args.q);
  const int64_t batch = q.sizes[0], seq = q.sizes[2];
  if (!args.cos.present() || !args.sin.present()) check.fail("'cos' and 'sin' come together", "both, or neither");
  check.tensor("cos", args.cos, {-1, -1}, "[rows, rotary_dim/2] or [rows, rotary_dim]");
  check.tensor("sin", args.sin, {args.cos.sizes[0], args.cos.sizes[1]}, "as cos");
  check.same_dtype("sin", args.sin, "cos", args.cos);
  check.rows_contiguous("cos", args.cos);
  check.rows_contiguous("sin", args.sin);
  check.floating("cos", args.cos);
  check.parameter("cos", args.cos, args.q);
  if (args.cos.sizes[1] != rotary / 2 && args.cos.sizes[1] != rotary) {
    check.fail("'cos' has the wrong number of columns", std::to_string(rotary / 2) + " or " + std::to_string(rotary),
               std::to_string(args.cos.sizes[1]));
  }
  if (!args.positions && args.cos.sizes[0] != seq && args.cos.sizes[0] != batch * seq) {
    check.fail("'cos' has the wrong number of rows",
               std::to_string(seq) + (batch == 1 ? "" : " or " + std::to_string(batch * seq)),
               std::to_string(args.cos.sizes[0]), "Or pass positions, which say the row of each token.");
  }
}

void check_rope(const Check& check, const Rope& args) {
  if (args.q.present() && args.q.rank == 4) {
    check.tensor("q", args.q, {-1, -1, -1, -1}, "[batch, heads, seq, D]");
  } else {
    check.tensor("q", args.q, {-1, -1, -1}, "[tokens, heads, D] or [batch, heads, seq, D]");
  }
  check.floating("q", args.q);
  check.rows_contiguous("q", args.q);
  check_heads(check, "q_out", args.q_out, args.q, args.q.sizes[1]);
  check.writable("q_out", args.q_out);
  if (args.k.present() != args.k_out.present()) check.fail("'k' and 'k_out' come together", "both, or neither");
  if (args.k) {
    check_heads(check, "k", args.k, args.q, -1);
    check.rows_contiguous("k", args.k);
    check_heads(check, "k_out", args.k_out, args.q, args.k.sizes[1]);
    check.writable("k_out", args.k_out);
  }
  const int64_t width = args.q.sizes[args.q.rank - 1], rotary = rope_rotary_dim(args);
  if (rotary < 0 || rotary > width || rotary % 2 != 0) {
    check.fail(args.rotary_dim == 0 ? "the head size cannot be halved" : "'rotary_dim' is out of range",
               "an even number from 0 to D = " + std::to_string(width), std::to_string(rotary));
  }
  check.known("pairing", args.pairing, RopePairing::interleaved);
  if (args.cos.present() || args.sin.present()) {
    check_tables(check, args, rotary);
  } else {
    check.in_range("theta", args.theta, 1e-6, 1e30);
    check_scaling(check, args.scaling, args.theta);
  }
  if (args.positions) {
    const Tensor q = rope_batched(args.q);
    if (args.q.rank == 4 && args.positions.rank == 2) {
      check.tensor("positions", args.positions, {q.sizes[0], q.sizes[2]}, "[batch, seq] of q");
    } else {
      check.tensor("positions", args.positions, {q.sizes[2]}, args.q.rank == 4 ? "[seq] of q" : "[tokens] of q");
    }
    check.index("positions", args.positions);
    check.contiguous("positions", args.positions);
    if (args.cos) check.indices_below("positions", args.positions, args.cos.sizes[0]);
  }
  check.apart("q_out", args.q_out, "q", args.q, true);
  check.apart("k_out", args.k_out, "k", args.k, true);
  check.apart("q_out", args.q_out, "k", args.k);
  check.apart("k_out", args.k_out, "q", args.q);
  check.apart("q_out", args.q_out, "k_out", args.k_out);
  for (const auto& [name, t] : {std::pair{"cos", &args.cos}, {"sin", &args.sin}, {"positions", &args.positions}}) {
    check.apart("q_out", args.q_out, name, *t);
    check.apart("k_out", args.k_out, name, *t);
  }
}

}  // namespace

void rope_forward(const Context& ctx, const Rope& args) {
  check_rope(Check("rope_forward", ctx), args);
  route(ctx, args, args.q.dtype, &Backend::rope_forward, "rope_forward", {&args.q_out, &args.k_out});
}

void rope_backward(const Context& ctx, const Rope& args) {
  check_rope(Check("rope_backward", ctx), args);
  route(ctx, args, args.q.dtype, &Backend::rope_backward, "rope_backward", {&args.q_out, &args.k_out});
}

}  // namespace tigon::ops
