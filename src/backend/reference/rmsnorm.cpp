#include <cmath>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

double gain(const Tensor& weight, double offset, int64_t j) { return weight ? offset + at(weight, j) : 1.0; }

}  // namespace

void rmsnorm_forward(const Context& ctx, const ops::RmsnormForward& args) {
  if (ctx.measuring()) return;
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  for (int64_t i = 0; i < tokens; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < hidden; ++j) squares += at(args.x, i, j) * at(args.x, i, j);
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + args.eps);
    for (int64_t j = 0; j < hidden; ++j) at(args.y, i, j) = at(args.x, i, j) * rstd * gain(args.weight, args.offset, j);
    if (args.rstd) at(args.rstd, i) = rstd;
  }
}

void rmsnorm_backward(const Context& ctx, const ops::RmsnormBackward& args) {
  if (ctx.measuring()) return;
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  if (args.dweight) {
    for (int64_t j = 0; j < hidden; ++j) {
      double sum = args.accumulate_dweight ? at(args.dweight, j) : 0.0;
      for (int64_t i = 0; i < tokens; ++i) sum += at(args.dy, i, j) * at(args.x, i, j) * at(args.rstd, i);
      at(args.dweight, j) = sum;
    }
  }
  if (!args.dx) return;
  for (int64_t i = 0; i < tokens; ++i) {
    const double rstd = at(args.rstd, i);
    double dot = 0;
    for (int64_t j = 0; j < hidden; ++j)
      dot += at(args.dy, i, j) * gain(args.weight, args.offset, j) * at(args.x, i, j);
    const double mean = dot / static_cast<double>(hidden);
    for (int64_t j = 0; j < hidden; ++j) {
      const double m = at(args.dy, i, j) * gain(args.weight, args.offset, j);
      at(args.dx, i, j) = rstd * (m - rstd * rstd * mean * at(args.x, i, j));
    }
  }
}

}  // namespace tigon::reference
