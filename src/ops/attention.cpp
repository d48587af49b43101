#include "tigon/ops/attention.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

// Every document begins where it is, and the next one not before it.
void check_starts(const Check& check, const Tensor& starts) {
  const int64_t seq = starts.sizes[1];
  for (int64_t row = 0; row < starts.sizes[0]; ++row) {
    const auto* const start = starts.as<int32_t>() + row * seq;
    for (int64_t i = 0; i < seq; ++i) {
      const int32_t least = i > 0 ? start[i - 1] : 0;
      if (start[i] >= least && start[i] <= i) continue;
      check.fail(
          "'starts' has a value that makes no sense for query " + std::to_string(i) + " of row " + std::to_string(row),
          std::to_string(least) + " to " + std::to_string(i), std::to_string(start[i]));
    }
  }
}

// Shapes and types of q, k, v, which both directions share.
template <class Args>
void check_inputs(const Context& ctx, const Check& check, const Args& args) {
  check.tensor("q", args.q, {-1, -1, -1, -1}, "[batch, seq, heads, D]");
  const Tensor& q = args.q;
  check.floating("q", q);
  check.rows_contiguous("q", q);
  check.tensor("k", args.k, {q.sizes[0], q.sizes[1], -1, q.sizes[3]}, "batch, seq, any heads, D of q");
  check.same_dtype("k", args.k, "q", q);
  check.rows_contiguous("k", args.k);
  check.tensor("v", args.v, {q.sizes[0], q.sizes[1], args.k.sizes[2], q.sizes[3]}, "as k");
  check.same_dtype("v", args.v, "q", q);
  check.rows_contiguous("v", args.v);
  if (q.sizes[3] == 0) check.fail("'q' has the wrong shape", "D of 1 or more", shape_string(q));
  if (args.k.sizes[2] == 0 || q.sizes[2] % args.k.sizes[2] != 0) {
    check.fail("the heads of 'q' cannot be shared among those of 'k'", "a multiple of kv_heads",
               std::to_string(q.sizes[2]) + " heads, " + std::to_string(args.k.sizes[2]) + " kv_heads");
  }
  check.finite("scale", args.scale);
  check.optional("starts", args.starts, {q.sizes[0], q.sizes[1]}, "[batch, seq] of q");
  if (!args.starts) return;
  check.dtype_is("starts", args.starts, DType::i32);
  check.contiguous("starts", args.starts);
  if (!args.causal) check.fail("'starts' is given, and 'causal' is not set", "both");
  if (!ctx.measuring() && ctx.device.kind == DeviceKind::cpu) check_starts(check, args.starts);
}

// A tensor of the shape and type of `like`.
void check_like(const Check& check, const char* name, const Tensor& t, const char* like_name, const Tensor& like) {
  check.tensor(name, t, {like.sizes[0], like.sizes[1], like.sizes[2], like.sizes[3]},
               ("as " + std::string(like_name)).c_str());
  check.same_dtype(name, t, like_name, like);
  check.rows_contiguous(name, t);
}

}  // namespace

void attention_forward(const Context& ctx, const AttentionForward& args) {
  const Check check("attention_forward", ctx);
  check_inputs(ctx, check, args);
  check_like(check, "o", args.o, "q", args.q);
  check.writable("o", args.o);
  check.optional("lse", args.lse, {args.q.sizes[0], args.q.sizes[2], args.q.sizes[1]}, "[batch, heads, seq] of q");
  check.statistic("lse", args.lse, args.q);
  check.contiguous("lse", args.lse);
  check.apart("o", args.o, "q", args.q);
  check.apart("o", args.o, "k", args.k);
  check.apart("o", args.o, "v", args.v);
  check.apart("lse", args.lse, "o", args.o);
  check.apart("lse", args.lse, "q", args.q);
  check.apart("lse", args.lse, "k", args.k);
  check.apart("lse", args.lse, "v", args.v);
  route(ctx, args, args.q.dtype, &Backend::attention_forward, "attention_forward", {&args.o, &args.lse});
}

void attention_backward(const Context& ctx, const AttentionBackward& args) {
  const Check check("attention_backward", ctx);
  check_inputs(ctx, check, args);
  check_like(check, "dout", args.dout, "q", args.q);
  check_like(check, "o", args.o, "q", args.q);
  check.tensor("lse", args.lse, {args.q.sizes[0], args.q.sizes[2], args.q.sizes[1]}, "[batch, heads, seq] of q");
  check.statistic("lse", args.lse, args.q);
  check.contiguous("lse", args.lse);
  check_like(check, "dq", args.dq, "q", args.q);
  check_like(check, "dk", args.dk, "k", args.k);
  check_like(check, "dv", args.dv, "v", args.v);
  const std::pair<const char*, const Tensor*> outputs[] = {{"dq", &args.dq}, {"dk", &args.dk}, {"dv", &args.dv}};
  const std::pair<const char*, const Tensor*> inputs[] = {{"dout", &args.dout}, {"q", &args.q}, {"k", &args.k},
                                                          {"v", &args.v},       {"o", &args.o}, {"lse", &args.lse}};
  for (const auto& [name, t] : outputs) {
    check.writable(name, *t);
    for (const auto& [input_name, input] : inputs) check.apart(name, *t, input_name, *input);
  }
  check.apart("dq", args.dq, "dk", args.dk);
  check.apart("dq", args.dq, "dv", args.dv);
  check.apart("dk", args.dk, "dv", args.dv);
  route(ctx, args, args.q.dtype, &Backend::attention_backward, "attention_backward", {&args.dq, &args.dk, &args.dv});
}

}  // namespace tigon::ops
