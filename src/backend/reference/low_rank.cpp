#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/reference_backend.hpp"
#include "tigon/core/philox.hpp"

namespace tigon::reference {

void normal(const Context& ctx, const ops::Normal& args) {
  if (ctx.measuring()) return;
  const RandomStream random{.seed = args.seed, .step = args.step, .tensor = args.tensor_id};
  for (int64_t i = 0; i < args.y.elements(); ++i) {
    const auto element = static_cast<uint64_t>(args.first_element + i);
    args.y.as<double>()[i] = random.normal_pair(element / 2, args.deviation)[element % 2];
  }
}

namespace {

double norm_of_row(const Tensor& t, int64_t row) {
  double sum = 0;
  for (int64_t k = 0; k < t.sizes[1]; ++k) sum += at(t, row, k) * at(t, row, k);
  return std::sqrt(sum);
}
double norm_of(const Tensor& t) {
  double sum = 0;
  for (int64_t i = 0; i < t.sizes[0]; ++i) sum += std::pow(norm_of_row(t, i), 2);
  return std::sqrt(sum);
}

}  // namespace

void apollo_factors(const Context& ctx, const ops::ApolloFactors& args) {
  if (ctx.measuring()) return;
  const double scale = args.grad_scale ? at(args.grad_scale, 0) : 1.0;
  const Tensor grad = args.columns ? args.grad.transpose(0, 1) : args.grad;
  double squares = 0;
  for (int64_t j = 0; j < grad.sizes[0]; ++j) {
    const double direction = args.whole ? norm_of(args.direction) : norm_of_row(args.direction, j);
    const double projected = args.whole ? norm_of(args.projected) : norm_of_row(args.projected, j);
    const double factor = direction / (scale * projected + 1e-8) * scale;
    at(args.factors, j) = args.gain * factor;
    squares += std::pow(factor * norm_of_row(grad, j), 2);
  }
  const double length = std::sqrt(squares), last = at(args.last, 0);
  const double limit = last == 0 ? 1.0 : std::max(1.0, length / (last + 1e-8) / args.growth);
  for (int64_t j = 0; j < grad.sizes[0]; ++j) at(args.factors, j) /= limit;
  at(args.last, 0) = length / limit;
}

void orthonormalize(const Context& ctx, const ops::Orthonormalize& args) {
  if (ctx.measuring()) return;
  const Tensor& q = args.rows;
  std::vector<double> before(static_cast<size_t>(q.sizes[0]));
  for (int64_t i = 0; i < ops::kOrthonormalPasses * q.sizes[0]; ++i) {
    const int64_t row = i % q.sizes[0];
    for (int64_t j = 0; row == 0 && j < q.sizes[0]; ++j) before[static_cast<size_t>(j)] = norm_of_row(q, j);
    const bool lost = norm_of_row(q, row) <= ops::kLostRow * before[static_cast<size_t>(row)];
    for (int64_t k = 0; lost && k < q.sizes[1]; ++k)
      at(q, row, k) = static_cast<double>(RandomStream{}.uniform(static_cast<uint64_t>(row * q.sizes[1] + k))) - 0.5;
    const double norm = norm_of_row(q, row);
    for (int64_t k = 0; k < q.sizes[1]; ++k) at(q, row, k) /= norm;
    for (int64_t j = row + 1; j < q.sizes[0]; ++j) {
      double dot = 0;
      for (int64_t k = 0; k < q.sizes[1]; ++k) dot += at(q, row, k) * at(q, j, k);
      for (int64_t k = 0; k < q.sizes[1]; ++k) at(q, j, k) -= dot * at(q, row, k);
    }
  }
}

// f64 needs no rounding, so args.rounding has nothing to say here.
void scaled_update(const Context& ctx, const ops::ScaledUpdate& args) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.param.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.param.sizes[1]; ++j) {
      double& param = at(args.param, i, j);
      const double factor = args.factors ? at(args.factors, args.columns ? j : i) : 1.0;
      param -= args.lr * factor * at(args.grad, i, j);
      param -= args.decay * param;
      if (args.param_copy) at(args.param_copy, i, j) = param;
    }
  }
}

}  // namespace tigon::reference
