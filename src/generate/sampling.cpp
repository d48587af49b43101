#include "tigon/generate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"

namespace tigon {

namespace {

constexpr uint32_t kStream = 0x5A3Bu;  // apart from those of weights and data

[[noreturn]] void out_of_range(const char* name, const char* expected, double got) {
  throw Error(ErrorCode::invalid_argument,
              {.where = name, .what = "the value is out of range", .expected = expected, .got = std::to_string(got)});
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && o.temperature <= 100)) out_of_range("temperature", "0 to 100", o.temperature);
  if (o.top_k < 0) out_of_range("top-k", "0 for all, or more", static_cast<double>(o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1)) out_of_range("top-p", "above 0, at most 1", o.top_p);
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, int64_t sequence,
                     int64_t position) {
  // Minus infinity rules a token out; every comparison with what is not a number is false.
  const bool numbers = std::none_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  const auto most = std::max_element(logits.begin(), logits.end());
  if (logits.empty() || !numbers || !std::isfinite(*most)) {
    throw Error(ErrorCode::invalid_argument, {.where = "sampling",
                                              .what = "the model's logits are not finite",
                                              .fix = "Its weights were spoiled in training, or are not its own."});
  }
  if (options.temperature == 0) return static_cast<int32_t>(most - logits.begin());

  // Where some are left out, from the largest logit down; equal ones in the order of their tokens.
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto kept = options.top_k > 0 ? std::min(order.size(), static_cast<size_t>(options.top_k)) : order.size();
  if (kept < order.size() || options.top_p < 1)
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), before);
  order.resize(kept);
  std::vector<double> sums;  // of probabilities, not divided by their sum yet
  double sum = 0;
  for (const int32_t token : order) {
    sum += std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - *most) / options.temperature);
    sums.push_back(sum);
  }
  if (options.top_p < 1) {
    const auto enough = std::lower_bound(sums.begin(), sums.end(), options.top_p * sum);
    sums.resize(std::min(sums.size(), static_cast<size_t>(enough - sums.begin()) + 1));
    sum = sums.back();
  }
  const RandomStream random{.seed = options.seed, .step = static_cast<uint32_t>(sequence), .tensor = kStream};
  const Philox::Block words = random.block(static_cast<uint64_t>(position));
  const double uniform = (static_cast<double>(words[0]) + static_cast<double>(words[1]) * 0x1p-32) * 0x1p-32;
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return order[std::min(sums.size() - 1, static_cast<size_t>(chosen - sums.begin()))];
}

}  // namespace tigon
