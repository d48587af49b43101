#pragma once

#include "backend/reference/activation.hpp"
#include "backend/reference/reference_backend.hpp"

// c = act(a)·b for any activation: swiglu and geglu.
namespace tigon::reference {

template <class Args, class Act>
void gated_forward(const Context& ctx, const Args& args, const Act& act) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.a.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.a.sizes[1]; ++j) at(args.c, i, j) = act(at(args.a, i, j)).value * at(args.b, i, j);
  }
}

template <class Args, class Act>
void gated_backward(const Context& ctx, const Args& args, const Act& act) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.a.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.a.sizes[1]; ++j) {
      const Activation activation = act(at(args.a, i, j));
      const double b = at(args.b, i, j), dc = at(args.dc, i, j);
      at(args.da, i, j) = dc * b * activation.slope;
      at(args.db, i, j) = dc * activation.value;
      if (args.c) at(args.c, i, j) = activation.value * b;
    }
  }
}

}  // namespace tigon::reference
