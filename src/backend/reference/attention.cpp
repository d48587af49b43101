#include <cmath>
#include <vector>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

double scale_of(double scale, const Tensor& q) {
  return scale != 0 ? scale : 1.0 / std::sqrt(static_cast<double>(q.sizes[3]));
}

// f(batch, head, kv_head, query, the first key it sees, and the first behind those) for every query.
template <class Args, class F>
void for_queries(const Args& args, const F& f) {
  const int64_t group = args.q.sizes[2] / args.k.sizes[2];
  for (int64_t b = 0; b < args.q.sizes[0]; ++b) {
    for (int64_t h = 0; h < args.q.sizes[2]; ++h) {
      for (int64_t i = 0; i < args.q.sizes[1]; ++i) {
        const int64_t first = args.starts ? args.starts.template as<int32_t>()[b * args.q.sizes[1] + i] : 0;
        f(b, h, h / group, i, first, args.causal ? i + 1 : args.q.sizes[1]);
      }
    }
  }
}

double dot(const Tensor& a, int64_t i, int64_t a_head, const Tensor& b, int64_t j, int64_t b_head, int64_t batch) {
  double sum = 0;
  for (int64_t d = 0; d < a.sizes[3]; ++d) sum += at(a, batch, i, a_head, d) * at(b, batch, j, b_head, d);
  return sum;
}

void set_zero(const Tensor& t) {
  for (int64_t b = 0; b < t.sizes[0]; ++b) {
    for (int64_t i = 0; i < t.sizes[1]; ++i) {
      for (int64_t h = 0; h < t.sizes[2]; ++h) {
        for (int64_t d = 0; d < t.sizes[3]; ++d) at(t, b, i, h, d) = 0;
      }
    }
  }
}

}  // namespace

void attention_forward(const Context& ctx, const ops::AttentionForward& args) {
  if (ctx.measuring()) return;
  const double scale = scale_of(args.scale, args.q);
  std::vector<double> p(static_cast<size_t>(args.q.sizes[1]));
  for_queries(args, [&](int64_t b, int64_t h, int64_t kvh, int64_t i, int64_t first, int64_t keys) {
    double largest = -HUGE_VAL, sum = 0;
    for (int64_t j = first; j < keys; ++j) {
      p[static_cast<size_t>(j)] = scale * dot(args.q, i, h, args.k, j, kvh, b);
      largest = std::fmax(largest, p[static_cast<size_t>(j)]);
    }
    for (int64_t j = first; j < keys; ++j)
      sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - largest);
    for (int64_t d = 0; d < args.q.sizes[3]; ++d) {
      double o = 0;
      for (int64_t j = first; j < keys; ++j) o += p[static_cast<size_t>(j)] * at(args.v, b, j, kvh, d);
      at(args.o, b, i, h, d) = o / sum;
    }
    if (args.lse) at(args.lse, b, h, i) = largest + std::log(sum);
  });
}

void attention_backward(const Context& ctx, const ops::AttentionBackward& args) {
  if (ctx.measuring()) return;
  const double scale = scale_of(args.scale, args.q);
  set_zero(args.dq);
  set_zero(args.dk);
  set_zero(args.dv);
  for_queries(args, [&](int64_t b, int64_t h, int64_t kvh, int64_t i, int64_t first, int64_t keys) {
    const double delta = dot(args.dout, i, h, args.o, i, h, b);
    for (int64_t j = first; j < keys; ++j) {
      const double p = std::exp(scale * dot(args.q, i, h, args.k, j, kvh, b) - at(args.lse, b, h, i));
      const double ds = scale * p * (dot(args.dout, i, h, args.v, j, kvh, b) - delta);
      for (int64_t d = 0; d < args.q.sizes[3]; ++d) {
        at(args.dq, b, i, h, d) += ds * at(args.k, b, j, kvh, d);
        at(args.dk, b, j, kvh, d) += ds * at(args.q, b, i, h, d);
        at(args.dv, b, j, kvh, d) += p * at(args.dout, b, i, h, d);
      }
    }
  });
}

}  // namespace tigon::reference
