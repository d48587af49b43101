#include <cmath>
#include <vector>

#include "backend/reference/reference_backend.hpp"
#include "backend/rope_frequencies.hpp"
#include "backend/rope_layout.hpp"

namespace tigon::reference {

namespace {

// cos and sin of pair d in each row, from the caller's tables or from positions. Angles are f32 by definition of the
// op; everything after them is f64.
class CosSin {
 public:
  explicit CosSin(const ops::Rope& args)
      : args_(args), angles_(args), half_(rope_rotary_dim(args) / 2), factor_(rope_attention_factor(args.scaling)) {
    if (angles_.from_tables) return;
    frequencies_.resize(static_cast<size_t>(half_));
    rope_inverse_frequencies(args.scaling, args.theta, 2 * half_, frequencies_.data());
  }

  double cos(int64_t batch, int64_t token, int64_t d) const {
    if (angles_.from_tables) return at(args_.cos, angles_.row(batch, token), column(d));
    return std::cos(angle(batch, token, d)) * factor_;
  }
  double sin(int64_t batch, int64_t token, int64_t d) const {
    if (angles_.from_tables) return at(args_.sin, angles_.row(batch, token), column(d));
    return std::sin(angle(batch, token, d)) * factor_;
  }

 private:
  int64_t column(int64_t d) const {
    const bool twice = args_.cos.sizes[1] == 2 * half_ && args_.pairing == ops::RopePairing::interleaved;
    return twice ? 2 * d : d;
  }
  double angle(int64_t batch, int64_t token, int64_t d) const {
    const int64_t position = angles_.position(angles_.entry(batch, token));
    return static_cast<float>(position) * frequencies_[static_cast<size_t>(d)];
  }

  const ops::Rope& args_;
  RopeAngles angles_;
  int64_t half_;
  double factor_;
  std::vector<float> frequencies_;
};

void rotate(const ops::Rope& args, const CosSin& table, const Tensor& in, const Tensor& out, double direction) {
  if (!in) return;
  const Tensor x = rope_batched(in), y = rope_batched(out);
  const int64_t rotary = rope_rotary_dim(args), half = rotary / 2;
  const bool neighbours = args.pairing == ops::RopePairing::interleaved;
  for (int64_t batch = 0; batch < x.sizes[0]; ++batch) {
    for (int64_t head = 0; head < x.sizes[1]; ++head) {
      for (int64_t token = 0; token < x.sizes[2]; ++token) {
        for (int64_t d = 0; d < half; ++d) {
          const int64_t first = neighbours ? 2 * d : d, second = neighbours ? 2 * d + 1 : d + half;
          const double cos = table.cos(batch, token, d), sin = table.sin(batch, token, d) * direction;
          const double a = at(x, batch, head, token, first), b = at(x, batch, head, token, second);
          at(y, batch, head, token, first) = a * cos - b * sin;
          at(y, batch, head, token, second) = b * cos + a * sin;
        }
        for (int64_t d = rotary; d < x.sizes[3]; ++d) at(y, batch, head, token, d) = at(x, batch, head, token, d);
      }
    }
  }
}

void rope(const Context& ctx, const ops::Rope& args, double direction) {
  if (ctx.measuring()) return;
  const CosSin table(args);
  rotate(args, table, args.q, args.q_out, direction);
  rotate(args, table, args.k, args.k_out, direction);
}

}  // namespace

void rope_forward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, 1.0); }

void rope_backward(const Context& ctx, const ops::Rope& args) { rope(ctx, args, -1.0); }

}  // namespace tigon::reference
