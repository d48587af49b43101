#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

void linear_forward(const Context& ctx, const ops::LinearForward& args) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.y.sizes[0]; ++i) {
    for (int64_t o = 0; o < args.y.sizes[1]; ++o) {
      double sum = args.accumulate_y ? at(args.y, i, o) : args.bias ? at(args.bias, o) : 0.0;
      for (int64_t k = 0; k < args.x.sizes[1]; ++k) sum += at(args.x, i, k) * at(args.weight, o, k);
      at(args.y, i, o) = sum;
    }
  }
}

void linear_backward(const Context& ctx, const ops::LinearBackward& args) {
  if (ctx.measuring()) return;
  const int64_t tokens = args.dy.sizes[0], out = args.dy.sizes[1];
  if (args.dx) {
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t k = 0; k < args.dx.sizes[1]; ++k) {
        double sum = args.accumulate_dx ? at(args.dx, i, k) : 0.0;
        for (int64_t o = 0; o < out; ++o) sum += at(args.dy, i, o) * at(args.weight, o, k);
        at(args.dx, i, k) = sum;
      }
    }
  }
  if (args.dweight) {
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t k = 0; k < args.x.sizes[1]; ++k) {
        double sum = args.accumulate_dweight ? at(args.dweight, o, k) : 0.0;
        for (int64_t i = 0; i < tokens; ++i) sum += at(args.dy, i, o) * at(args.x, i, k);
        at(args.dweight, o, k) = sum;
      }
    }
  }
  if (args.dbias) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = args.accumulate_dweight ? at(args.dbias, o) : 0.0;
      for (int64_t i = 0; i < tokens; ++i) sum += at(args.dy, i, o);
      at(args.dbias, o) = sum;
    }
  }
}

}  // namespace tigon::reference
