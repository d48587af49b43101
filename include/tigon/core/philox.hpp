#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace tigon {

// Philox 4x32-10 (Salmon et al., 2011): random numbers as a pure function of a counter and a key, so the same
// (seed, step, tensor, element) gives the same bits on every device, thread count, shard and recomputation.
struct Philox {
  using Block = std::array<uint32_t, 4>;

  static constexpr Block block(Block counter, uint64_t key) noexcept {
    uint32_t k0 = static_cast<uint32_t>(key);
    uint32_t k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
      const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
      counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(product1),
                 static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(product0)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return counter;
  }
};

// The stream of random words of one tensor at one step. Four elements share a block: element e reads word e % 4 of
// block e / 4.
struct RandomStream {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t tensor = 0;

  constexpr Philox::Block block(uint64_t index) const noexcept {
    return Philox::block({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), step, tensor}, seed);
  }
  constexpr uint32_t bits(uint64_t element) const noexcept { return block(element / 4)[element % 4]; }

  // Uniform in [0, 1), 24 bits.
  constexpr float uniform(uint64_t element) const noexcept { return static_cast<float>(bits(element) >> 8) * 0x1p-24f; }

  // deviation · two standard normals, of elements 2·pair and 2·pair + 1: Box–Muller over their words.
  std::array<double, 2> normal_pair(uint64_t pair, double deviation = 1.0) const noexcept {
    const Philox::Block words = block(pair / 2);
    const uint64_t first = pair % 2 * 2;
    const double u = (static_cast<double>(words[first]) + 1.0) * 0x1p-32;
    const double angle = 6.283185307179586 * static_cast<double>(words[first + 1]) * 0x1p-32;
    const double radius = deviation * std::sqrt(-2.0 * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  float normal(uint64_t element) const noexcept { return static_cast<float>(normal_pair(element / 2)[element % 2]); }
};

}  // namespace tigon
