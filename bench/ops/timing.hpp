#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace tigon::bench {

// Milliseconds of one call.
template <class F>
double time_ms(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The value below which a share q of the samples lies, by linear interpolation.
inline double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double position = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (samples[above] - samples[below]) * (position - static_cast<double>(below));
}

}  // namespace tigon::bench
