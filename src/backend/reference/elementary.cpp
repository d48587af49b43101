#include <cmath>
#include <limits>

#include "backend/reference/activation.hpp"
#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

// f(offset of the element in each of the three tensors) over every element of y.
template <class F>
void for_elements(const Tensor& y, const Tensor& a, const Tensor& b, const F& f) {
  const int64_t count = y.elements();
  for (int64_t e = 0; e < count; ++e) {
    int64_t rest = e, oy = 0, oa = 0, ob = 0;
    for (int d = y.rank - 1; d >= 0; --d) {
      const int64_t i = rest % y.sizes[d];
      rest /= y.sizes[d];
      oy += i * y.strides[d];
      oa += i * a.strides[d];
      ob += i * b.strides[d];
    }
    f(oy, oa, ob);
  }
}

double apply(ops::UnaryOp op, double x) {
  switch (op) {
    case ops::UnaryOp::copy: return x;
    case ops::UnaryOp::square: return x * x;
    case ops::UnaryOp::sqrt: return std::sqrt(x);
    case ops::UnaryOp::rsqrt: return 1.0 / std::sqrt(x);
    case ops::UnaryOp::exp: return std::exp(x);
    case ops::UnaryOp::log: return std::log(x);
    case ops::UnaryOp::tanh: return std::tanh(x);
    case ops::UnaryOp::silu: return silu(x).value;
    case ops::UnaryOp::gelu_tanh: return gelu_tanh(x).value;
    case ops::UnaryOp::gelu_erf: return gelu_erf(x).value;
  }
  return 0;
}

double apply(ops::BinaryOp op, double a, double b) {
  switch (op) {
    case ops::BinaryOp::add: return a + b;
    case ops::BinaryOp::sub: return a - b;
    case ops::BinaryOp::mul: return a * b;
    case ops::BinaryOp::div: return a / b;
    case ops::BinaryOp::silu_grad: return a * silu(b).slope;
    case ops::BinaryOp::gelu_tanh_grad: return a * gelu_tanh(b).slope;
    case ops::BinaryOp::gelu_erf_grad: return a * gelu_erf(b).slope;
    case ops::BinaryOp::tanh_grad: return a * (1.0 - b * b);
  }
  return 0;
}

}  // namespace

void unary(const Context& ctx, const ops::Unary& args) {
  if (ctx.measuring()) return;
  for_elements(args.y, args.x, args.x, [&](int64_t y, int64_t x, int64_t) {
    const double scaled = args.alpha == 0 ? 0.0 : args.alpha * args.x.as<double>()[x];
    args.y.as<double>()[y] = apply(args.op, scaled + args.beta);
  });
}

void binary(const Context& ctx, const ops::Binary& args) {
  if (ctx.measuring()) return;
  for_elements(args.y, args.a, args.b, [&](int64_t y, int64_t a, int64_t b) {
    args.y.as<double>()[y] = apply(args.op, args.a.as<double>()[a], args.b.as<double>()[b]);
  });
}

void reduce(const Context& ctx, const ops::Reduce& args) {
  if (ctx.measuring()) return;
  const Tensor x = args.over_rows ? args.x.transpose(0, 1) : args.x;
  for (int64_t i = 0; i < x.sizes[0]; ++i) {
    const bool take_max = args.op == ops::ReduceOp::max;
    double value = take_max ? -std::numeric_limits<double>::infinity() : 0.0;
    for (int64_t j = 0; j < x.sizes[1]; ++j) {
      const double element = at(x, i, j);
      if (!take_max) value += element;
      if (take_max && (element > value || std::isnan(element))) value = element;
    }
    at(args.y, i) = args.op == ops::ReduceOp::mean ? value / static_cast<double>(x.sizes[1]) : value;
  }
}

void gather(const Context& ctx, const ops::Gather& args) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.x.sizes[0]; ++i) {
    const int64_t column = index_at(args.index, i);
    at(args.y, i) = column < 0 ? 0.0 : at(args.x, i, column);
  }
}

void scatter_add(const Context& ctx, const ops::ScatterAdd& args) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.y.sizes[0]; ++i) {
    const int64_t column = index_at(args.index, i);
    if (column >= 0) at(args.y, i, column) += at(args.x, i);
  }
}

}  // namespace tigon::reference
