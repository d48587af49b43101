#include <cmath>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

double value_or(const Tensor& t, int64_t j, double missing) { return t ? at(t, j) : missing; }

}  // namespace

void layernorm_forward(const Context& ctx, const ops::LayernormForward& args) {
  if (ctx.measuring()) return;
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const auto count = static_cast<double>(hidden);
  for (int64_t i = 0; i < tokens; ++i) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < hidden; ++j) sum += at(args.x, i, j);
    const double mean = sum / count;
    for (int64_t j = 0; j < hidden; ++j) squares += (at(args.x, i, j) - mean) * (at(args.x, i, j) - mean);
    const double rstd = 1.0 / std::sqrt(squares / count + args.eps);
    for (int64_t j = 0; j < hidden; ++j) {
      at(args.y, i, j) = (at(args.x, i, j) - mean) * rstd * value_or(args.weight, j, 1.0) + value_or(args.bias, j, 0.0);
    }
    if (args.mean) at(args.mean, i) = mean;
    if (args.rstd) at(args.rstd, i) = rstd;
  }
}

void layernorm_backward(const Context& ctx, const ops::LayernormBackward& args) {
  if (ctx.measuring()) return;
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const auto normal = [&](int64_t i, int64_t j) { return (at(args.x, i, j) - at(args.mean, i)) * at(args.rstd, i); };
  for (int64_t j = 0; j < hidden; ++j) {
    double dweight = 0, dbias = 0;
    for (int64_t i = 0; i < tokens; ++i) {
      dweight += at(args.dy, i, j) * normal(i, j);
      dbias += at(args.dy, i, j);
    }
    if (args.dweight) at(args.dweight, j) = dweight + (args.accumulate_dweight ? at(args.dweight, j) : 0.0);
    if (args.dbias) at(args.dbias, j) = dbias + (args.accumulate_dweight ? at(args.dbias, j) : 0.0);
  }
  if (!args.dx) return;
  for (int64_t i = 0; i < tokens; ++i) {
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < hidden; ++j) {
      const double m = at(args.dy, i, j) * value_or(args.weight, j, 1.0);
      sum += m;
      dot += m * normal(i, j);
    }
    const double mean = sum / static_cast<double>(hidden), slope = dot / static_cast<double>(hidden);
    for (int64_t j = 0; j < hidden; ++j) {
      const double m = at(args.dy, i, j) * value_or(args.weight, j, 1.0);
      at(args.dx, i, j) = at(args.rstd, i) * (m - mean - normal(i, j) * slope);
    }
  }
}

}  // namespace tigon::reference
