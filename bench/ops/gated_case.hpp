#pragma once

#include "op_case.hpp"
#include "tigon/ops/elementary.hpp"

namespace tigon::bench {

// c = act(a)·b, the case that swiglu and geglu share. Forward and Backward are the op's argument structs; `call` has
// the op's four functions.
template <class Forward, class Backward>
struct GatedCalls {
  void (*forward)(const Context&, const Forward&);
  void (*backward)(const Context&, const Backward&);
  void (*unfused_forward)(const Context&, const Forward&, ops::unfused::Tape&);
  void (*unfused_backward)(const Context&, const Backward&, ops::unfused::Tape&);
};

// `set` completes the arguments beyond the tensors. With `packed`, a and b are the two halves of one buffer, as are da
// and db. With `recompute`, backward writes c again; with `over_dc`, in the place of dc.
struct GatedOptions {
  bool packed = false;
  bool recompute = false;
  bool over_dc = false;
};

template <class Forward, class Backward, class Set>
OpCase gated_case(const std::string& op, int64_t tokens, int64_t columns, const GatedOptions& options,
                  const std::string& flags, const GatedCalls<Forward, Backward>& call, const Set& set) {
  OpCase c;
  c.op = op;
  c.shape = std::to_string(tokens) + "x" + std::to_string(columns);
  c.flags = flags;
  c.cancelling = 1.0;  // where act' crosses zero, da is a difference of terms as large as dc·b
  if (options.packed) {
    c.inputs = {{.name = "ab", .sizes = {tokens, 2 * columns}, .fill = {.deviation = 2.0}, .differentiable = true}};
  } else {
    c.inputs = {{.name = "a", .sizes = {tokens, columns}, .fill = {.deviation = 2.0}, .differentiable = true},
                {.name = "b", .sizes = {tokens, columns}, .differentiable = true}};
  }
  c.outputs = {{.name = "c", .sizes = {tokens, columns}, .differentiable = true}};
  if (options.recompute) c.outputs.push_back({.name = "c_again", .sizes = {tokens, columns}});
  // Part 0 or 1 of the packed buffer, or the tensor of that name.
  const auto part = [=](const Tensors& t, const std::string& prefix, int index) {
    if (!options.packed) return t[prefix + (index == 0 ? "a" : "b")];
    return t[prefix + "ab"].slice(1, index * columns, (index + 1) * columns);
  };
  const auto forward_args = [=](const Tensors& t) {
    Forward args{.a = part(t, "", 0), .b = part(t, "", 1), .c = t["c"]};
    set(args);
    return args;
  };
  const auto backward_args = [=](const Context& ctx, const Tensors& t) {
    // A copy of dc is written over, so that a second run finds what the first one did.
    if (options.over_dc) ops::unary(ctx, {.op = ops::UnaryOp::copy, .x = t["dc"], .y = t["c_again"]});
    Backward args{.dc = t[options.over_dc ? "c_again" : "dc"],
                  .a = part(t, "", 0),
                  .b = part(t, "", 1),
                  .da = part(t, "d", 0),
                  .db = part(t, "d", 1),
                  .c = t["c_again"]};
    set(args);
    return args;
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { call.forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { call.backward(ctx, backward_args(ctx, t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    call.unfused_forward(ctx, forward_args(t), tape);
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    call.unfused_backward(ctx, backward_args(ctx, t), tape);
  };
  c.forward_work = [=](int64_t size) { return Work{.bytes = 3 * size * tokens * columns}; };
  c.backward_work = [=](int64_t size) { return Work{.bytes = (options.recompute ? 6 : 5) * size * tokens * columns}; };
  return c;
}

}  // namespace tigon::bench
