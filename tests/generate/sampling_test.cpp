#include "tigon/generate/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tigon/core/error.hpp"

namespace tigon {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, -2.0f, 3.0f, 2.0f, 0.0f};

// How often each token comes in many places.
std::map<int32_t, double> shares(const SamplingOptions& options) {
  constexpr int kCount = 20000;
  std::map<int32_t, double> counts;
  for (int i = 0; i < kCount; ++i) counts[sample_token(kLogits, options, 0, i)] += 1.0 / kCount;
  return counts;
}

TEST(Sampling, TheMostLikelyIsTheFirstOfThem) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 0, 0), 1);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 3, 9), 1);
  EXPECT_EQ(sample_token(kLogits, {.top_k = 1}, 0, 5), 1);
  EXPECT_EQ(sample_token(kLogits, {.top_p = 1e-9}, 0, 5), 1);
}

TEST(Sampling, FollowsTheProbabilities) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double sum = 0;
    for (const float x : kLogits) sum += std::exp(static_cast<double>(x) / temperature);
    const auto seen = shares({.temperature = temperature, .seed = 7});
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(static_cast<double>(kLogits[i]) / temperature) / sum;
      const auto found = seen.find(static_cast<int32_t>(i));
      EXPECT_NEAR(found == seen.end() ? 0 : found->second, p, 4 * std::sqrt(p / 20000) + 1e-4)
          << temperature << " " << i;
    }
  }
}

TEST(Sampling, KeepsTheLargestAndThoseThatSuffice) {
  const auto two = shares({.top_k = 2});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 0.5, 0.02);
  EXPECT_NEAR(two.at(3), 0.5, 0.02);
  EXPECT_EQ(shares({.top_k = 100}).size(), 6u);
  // Probabilities 0.381, 0.381, 0.140, 0.052, 0.019, …: three are needed for 0.8, two for 0.7.
  EXPECT_EQ(shares({.top_p = 0.7}).size(), 2u);
  EXPECT_EQ(shares({.top_p = 0.8}).size(), 3u);
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.8}).size(), 2u);
}

TEST(Sampling, IsAFunctionOfSeedSequenceAndPosition) {
  const SamplingOptions options{.temperature = 3, .seed = 4};
  std::vector<int32_t> a, b, other_seed, other_sequence;
  for (int i = 0; i < 50; ++i) {
    a.push_back(sample_token(kLogits, options, 1, i));
    b.push_back(sample_token(kLogits, options, 1, i));
    other_seed.push_back(sample_token(kLogits, {.temperature = 3, .seed = 5}, 1, i));
    other_sequence.push_back(sample_token(kLogits, options, 2, i));
  }
  EXPECT_EQ(a, b);
  EXPECT_NE(a, other_seed);
  EXPECT_NE(a, other_sequence);
}

TEST(Sampling, RefusesWhatMakesNoSense) {
  EXPECT_THROW(check_sampling({.temperature = -1}), Error);
  EXPECT_THROW(check_sampling({.temperature = std::nan("")}), Error);
  EXPECT_THROW(check_sampling({.top_k = -1}), Error);
  EXPECT_THROW(check_sampling({.top_p = 0}), Error);
  EXPECT_THROW(check_sampling({.top_p = 1.5}), Error);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& bad : {std::vector<float>{nan, nan}, {1, infinity}, {-infinity, -infinity}, {}})
    EXPECT_THROW((void)sample_token(bad, {}, 0, 0), Error);
  // A class that is ruled out is never taken.
  for (int i = 0; i < 200; ++i) EXPECT_EQ(sample_token(std::vector<float>{-infinity, 2, -infinity}, {}, 0, i), 1);
}

TEST(Sampling, ANanBesideNumbersIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW((void)sample_token(std::vector<float>{1, nan, 2}, {}, 0, 0), Error);
  EXPECT_THROW((void)sample_token(std::vector<float>{nan, 1, 2}, {.temperature = 0}, 0, 0), Error);
}

}  // namespace
}  // namespace tigon
