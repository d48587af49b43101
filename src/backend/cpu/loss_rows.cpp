#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/loss_rows.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/loss_rows.hpp"
#include "backend/cpu/softmax-inl.hpp"
// clang-format on

#include <cmath>
#include <numeric>

#ifndef TIGON_CPU_LOSS_ROWS_ONCE_
#define TIGON_CPU_LOSS_ROWS_ONCE_
namespace tigon::cpu {

// dlogits_j = (softmax·e^(x'_j − shift) − every·w_j − at_target·[j = target]) · dx'_j/dx_j
struct RowGradient {
  float shift = 0;
  float softmax = 0;
  float every = 0;
  float at_target = 0;
  int64_t target = -1;  // within these columns; −1: elsewhere
};

}  // namespace tigon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// x' = cap·tanh(x/cap), or x.
struct NoCap {
  TIGON_SIMD V value(V x) const { return x; }
};
struct SoftCap {
  V cap, inverse;
  explicit SoftCap(float limit) : cap(set(limit)), inverse(set(1.0f / limit)) {}
  TIGON_SIMD V tanh(V x) const { return hn::Tanh(D(), hn::Mul(x, inverse)); }
  TIGON_SIMD V value(V x) const { return hn::Mul(cap, tanh(x)); }
};

template <class T, class Cap>
TIGON_SIMD RowSums row_sums(const T* x, int64_t n, int64_t target, const float* weight, bool weighted_sum,
                            const Cap& cap) {
  const auto raw = [&](int64_t j, auto part) HWY_ATTR { return load(x + j, part); };
  const RowSoftmax soft = softmax_row(n, raw, [&](V v) HWY_ATTR { return cap.value(v); });
  RowSums result{.any = true, .max = soft.max, .shift = soft.shift, .sum = soft.sum};
  if (target >= 0) result.target_logit = static_cast<double>(hn::GetLane(cap.value(load(x + target, Part{1}))));
  // The maximum is exact, so its first place is found by equality; the cap, which could make ties, is not in it.
  result.predicted = soft.first_block;
  for (int64_t j = soft.first_block; j < std::min(n, soft.first_block + kSoftmaxBlock); ++j) {
    if (static_cast<float>(x[j]) == soft.max) {
      result.predicted = j;
      break;
    }
  }
  for (int64_t begin = 0; weighted_sum && begin < n; begin += kSoftmaxBlock) {
    const int64_t count = std::min(kSoftmaxBlock, n - begin);
    result.weighted_sum += static_cast<double>(sum_row(count, [&](int64_t j, auto part) HWY_ATTR {
      const V v = used_or(hn::Sub(cap.value(raw(begin + j, part)), set(soft.shift)), zero(), part);
      return weight != nullptr ? hn::Mul(v, load(weight + begin + j, part)) : v;
    }));
  }
  return result;
}

// Of one row's columns; `target` is counted from the first of them, negative where it is elsewhere.
RowSums LossRowSums(const LogitRow& row, int64_t target, const float* weight, bool weighted_sum, float softcap) {
  RowSums result;
  with_type(row.dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(row.logits);
    result = softcap > 0 ? row_sums(x, row.count, target, weight, weighted_sum, SoftCap(softcap))
                         : row_sums(x, row.count, target, weight, weighted_sum, NoCap());
  });
  return result;
}

// From the first column to the last, each vector read before it is written: `out` may be x, also where it is narrower.
template <bool kStream, class T, class Out, class Cap>
TIGON_SIMD void row_gradient(const T* x, int64_t n, const RowGradient& g, const float* weight, const Cap& cap,
                             Out* out) {
  const V shift = set(g.shift), softmax = set(g.softmax), every = set(g.every);
  const auto gradient = [&](int64_t j, auto part, V at_target) HWY_ATTR {
    const V v = load(x + j, part);
    const V from_all = weight != nullptr ? hn::Mul(every, load(weight + j, part)) : every;
    const V rest = hn::Add(from_all, at_target);
    if constexpr (std::is_same_v<Cap, NoCap>) {
      return hn::MulSub(softmax, exp_nonpositive(hn::Sub(v, shift)), rest);
    } else {
      const V tanh = cap.tanh(v);
      const V by_capped = hn::MulSub(softmax, exp_nonpositive(hn::Sub(hn::Mul(cap.cap, tanh), shift)), rest);
      return hn::Mul(by_capped, hn::NegMulAdd(tanh, tanh, set(1.0f)));
    }
  };
  const auto plain = [&](int64_t begin, int64_t end) HWY_ATTR {
    for_row(end - begin, [&](int64_t j, auto part)
                             HWY_ATTR { put<kStream>(gradient(begin + j, part, zero()), out + begin + j, part); });
  };
  if (g.target < 0) return plain(0, n);
  // The vector that holds the target is formed apart, so that the entry is whole before it is rounded.
  const int64_t begin = g.target / lanes() * lanes(), end = std::min(n, begin + lanes());
  plain(0, begin);
  const auto is_target = hn::Eq(hn::Iota(D(), 0.0f), set(static_cast<float>(g.target - begin)));
  const V at_target = hn::IfThenElseZero(is_target, set(g.at_target));
  for_row(end - begin,
          [&](int64_t, auto part) HWY_ATTR { put<kStream>(gradient(begin, part, at_target), out + begin, part); });
  plain(end, n);
}

template <class T, class Out>
TIGON_SIMD void any_row_gradient(const LogitRow& row, const RowGradient& gradient, const float* weight, float softcap,
                                 bool stream, Out* out) {
  const T* x = static_cast<const T*>(row.logits);
  if (softcap > 0) return row_gradient<false>(x, row.count, gradient, weight, SoftCap(softcap), out);
  if (stream) {
    row_gradient<true>(x, row.count, gradient, weight, NoCap(), out);
  } else {
    row_gradient<false>(x, row.count, gradient, weight, NoCap(), out);
  }
}

void LossRowGradient(const LogitRow& row, const RowGradient& gradient, const float* weight, float softcap, bool stream,
                     DType type, void* dlogits) {
  if (type != row.dtype) {
    return any_row_gradient<float>(row, gradient, weight, softcap, stream, static_cast<bf16*>(dlogits));
  }
  with_type(row.dtype, [&](auto* t) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(t)>;
    any_row_gradient<T>(row, gradient, weight, softcap, stream, static_cast<T*>(dlogits));
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(LossRowSums);
HWY_EXPORT(LossRowGradient);

LossBatch::LossBatch(const Context& ctx, const LossInputs& inputs)
    : in_(inputs),
      tokens_(inputs.target.sizes[0]),
      token_losses_(ctx.scratch("token_losses", tokens_ * static_cast<int64_t>(sizeof(TokenLoss)))) {
  if (ctx.measuring()) return;
  double target_weights = 0;
  for (int64_t i = 0; i < tokens_; ++i) {
    if (!counted(i)) continue;
    ++counted_;
    target_weights += weight_of(target(i));
  }
  if (in_.options.label_smoothing > 0) {
    for (int64_t j = 0; j < in_.vocab; ++j) class_weight_sum_ += weight_of(j);
  }
  if (in_.options.reduction == ops::Reduction::mean) {
    entropy_scale_ = target_weights != 0 ? 1.0 / target_weights : 0.0;
    z_scale_ = counted_ > 0 ? 1.0 / static_cast<double>(counted_) : 0.0;
  }
}

double LossBatch::upstream_of(int64_t token) const {
  if (!in_.dloss) return 1.0;
  return static_cast<double>(in_.dloss.as<float>()[in_.dloss.sizes[0] == 1 ? 0 : token]);
}

void LossBatch::add_columns(int64_t token, const LogitRow& columns, RowSums& sums) const {
  const bool smooths = in_.options.label_smoothing > 0;
  const float* weights = in_.class_weight ? class_weights() + columns.first : nullptr;
  const int64_t y = target(token) - columns.first;
  RowSums found = HWY_DYNAMIC_DISPATCH(LossRowSums)(columns, y < columns.count ? y : -1, weights, smooths,
                                                    static_cast<float>(in_.options.softcap));
  found.predicted += columns.first;
  if (smooths) {
    found.weights = columns.count == in_.vocab ? class_weight_sum_ : static_cast<double>(columns.count);
    if (weights != nullptr && columns.count < in_.vocab)
      found.weights = std::accumulate(weights, weights + columns.count, 0.0);
  }
  if (!sums.any) {
    sums = found;
    return;
  }
  // Columns that are all −inf have no scale: their shift, 0, may be far from that of the others.
  const auto empty = [](const RowSums& part) { return part.sum == 0; };
  const double shift = static_cast<double>(empty(sums)    ? found.shift
                                           : empty(found) ? sums.shift
                                                          : std::max(sums.shift, found.shift));
  const auto moved = [&](const RowSums& part) { return static_cast<double>(part.shift) - shift; };
  const auto rescaled = [&](const RowSums& part) { return empty(part) ? 0.0 : part.sum * std::exp(moved(part)); };
  sums.sum = rescaled(sums) + rescaled(found);
  sums.weighted_sum += moved(sums) * sums.weights + found.weighted_sum + moved(found) * found.weights;
  sums.shift = static_cast<float>(shift);
  sums.weights += found.weights;
  sums.target_logit += found.target_logit;  // one of them has it
  if (found.max > sums.max) {
    sums.max = found.max;
    sums.predicted = found.predicted;
  }
}

void LossBatch::finish_row(int64_t token, const RowSums& row_sums) const {
  const auto& options = in_.options;
  const double smoothing = options.label_smoothing;
  const int64_t y = target(token);
  // The loss is formed from the logarithm alone: beside a large shift lse has no room for it.
  const double shift = static_cast<double>(row_sums.shift), log_sum = std::log(row_sums.sum), lse = shift + log_sum;
  double entropy = (1.0 - smoothing) * weight_of(y) * (log_sum + (shift - row_sums.target_logit));
  if (smoothing > 0) {
    entropy += smoothing / static_cast<double>(in_.vocab) * (log_sum * class_weight_sum_ - row_sums.weighted_sum);
  }
  const double z = z_scale_ * scale_of(token) * options.z_loss * lse * lse;
  const double loss = entropy_scale_ * scale_of(token) * entropy + z;
  write_token(token,
              {.loss = static_cast<float>(loss),
               .z_loss = static_cast<float>(z),
               .right = row_sums.predicted == y ? 1.0f : 0.0f},
              lse, row_sums.predicted);
}

RowScale LossBatch::row_scale(const LogitRow& row, float lse) const {
  // Half of lse's last bit changes every p by 4e-6 here, and by more and more beyond; beside −1e30 nothing is left of
  // the sum. Such a row is read once more.
  constexpr float kLargest = 128.0f;
  if (std::abs(lse) <= kLargest) return {.shift = static_cast<double>(lse)};
  const RowSums sums =
      HWY_DYNAMIC_DISPATCH(LossRowSums)(row, 0, nullptr, false, static_cast<float>(in_.options.softcap));
  return sums.scale();
}

void LossBatch::gradient_row(int64_t token, const LogitRow& row, const RowScale& scale, void* dlogits,
                             bool stream) const {
  write_gradient(token, row, scale, dlogits, row.dtype, stream);
}

void LossBatch::gradient_in_place(int64_t token, const LogitRow& row, const RowScale& scale, DType type) const {
  write_gradient(token, row, scale, const_cast<void*>(row.logits), type, false);
}

void LossBatch::write_gradient(int64_t token, const LogitRow& row, const RowScale& scale, void* dlogits, DType type,
                               bool stream) const {
  const auto& options = in_.options;
  const int64_t y = target(token);
  const double upstream = upstream_of(token) * scale_of(token);
  const double entropy = upstream * entropy_scale_;
  const double per_class = options.label_smoothing / static_cast<double>(in_.vocab);
  const double at_target = (1.0 - options.label_smoothing) * weight_of(y);
  const double lse = scale.shift + std::log(scale.sum);
  const double softmax =
      entropy * (at_target + per_class * class_weight_sum_) + 2.0 * upstream * z_scale_ * options.z_loss * lse;
  const RowGradient gradient{.shift = static_cast<float>(scale.shift),
                             .softmax = static_cast<float>(softmax / scale.sum),
                             .every = static_cast<float>(entropy * per_class),
                             .at_target = static_cast<float>(entropy * at_target),
                             .target = y >= row.first && y < row.first + row.count ? y - row.first : -1};
  HWY_DYNAMIC_DISPATCH(LossRowGradient)
  (row, gradient, in_.class_weight ? class_weights() + row.first : nullptr, static_cast<float>(options.softcap), stream,
   type, dlogits);
}

void LossBatch::flush_streams() { hwy::FlushStream(); }

void LossBatch::ignore_row(int64_t token) const { write_token(token, {}, 0.0, -1); }

void LossBatch::write_token(int64_t token, const TokenLoss& loss, double lse, int64_t predicted) const {
  token_losses_.as<TokenLoss>()[token] = loss;
  if (in_.out.lse) in_.out.lse.as<float>()[token] = static_cast<float>(lse);
  if (!in_.out.predicted) return;
  if (in_.out.predicted.dtype == DType::i32) {
    in_.out.predicted.as<int32_t>()[token] = static_cast<int32_t>(predicted);
  } else {
    in_.out.predicted.as<int64_t>()[token] = predicted;
  }
}

void LossBatch::finish() const {
  const TokenLoss* losses = token_losses_.as<TokenLoss>();
  const auto write = [&](const Tensor& t, float TokenLoss::*member, double factor) {
    if (!t) return;
    if (in_.options.reduction == ops::Reduction::none) {
      for (int64_t i = 0; i < tokens_; ++i) t.as<float>()[i] = losses[i].*member;
      return;
    }
    double sum = 0;
    for (int64_t i = 0; i < tokens_; ++i) sum += static_cast<double>(losses[i].*member);
    t.as<float>()[0] = static_cast<float>(factor * sum);
  };
  write(in_.out.loss, &TokenLoss::loss, 1.0);
  write(in_.out.z_loss, &TokenLoss::z_loss, 1.0);
  write(in_.out.accuracy, &TokenLoss::right, counted_ > 0 ? 1.0 / static_cast<double>(counted_) : 0.0);
}

}  // namespace tigon::cpu
#endif
