#pragma once

#include "ops/unfused/chain.hpp"

namespace tigon::ops::unfused {

// act = activation(a), kept for backward; c = act·b.
template <class Args>
void gated_forward(const Context& ctx, const Args& args, UnaryOp activation, Tape& tape) {
  const Chain chain(ctx);
  OwnedTensor act = chain.map("act", activation, args.a, args.a.dtype);
  chain.zip_to(BinaryOp::mul, act, args.b, args.c);
  tape.push_back(std::move(act));
}

template <class Args>
void gated_backward(const Context& ctx, const Args& args, BinaryOp activation_grad, Tape& tape) {
  const Chain chain(ctx);
  const Tensor act = tape[0];
  // c may take dc's place and db that of b, so neither is written before the other is computed.
  OwnedTensor c;
  if (args.c) c = chain.zip("c", BinaryOp::mul, act, args.b, args.c.dtype);
  {
    const OwnedTensor dact = chain.zip("dact", BinaryOp::mul, args.dc, args.b, args.a.dtype);
    chain.zip_to(activation_grad, dact, args.a, args.da);
  }
  chain.zip_to(BinaryOp::mul, args.dc, act, args.db);
  if (args.c) chain.copy_to(c, args.c);
  tape.clear();
}

}  // namespace tigon::ops::unfused
