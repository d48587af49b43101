#pragma once

#include <cstdint>
#include <cstring>

namespace tigon {

// A 64-bit checksum in four lanes, so that it runs at memory speed. A lane is (lane ^ word)·odd, rotated: invertible in
// the word, so one changed word always shows.
class Checksum {
 public:
  void add(const void* data, int64_t bytes) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    total_ += bytes;
    while (bytes > 0) {
      if (held_ == 0 && bytes >= kBlock) {
        block(p);
        p += kBlock;
        bytes -= kBlock;
        continue;
      }
      const int64_t n = bytes < kBlock - held_ ? bytes : kBlock - held_;
      std::memcpy(rest_ + held_, p, static_cast<size_t>(n));
      held_ += n;
      p += n;
      bytes -= n;
      if (held_ == kBlock) {
        block(rest_);
        held_ = 0;
      }
    }
  }

  uint64_t value() const noexcept {
    Checksum copy = *this;
    std::memset(copy.rest_ + held_, 0, static_cast<size_t>(kBlock - held_));
    copy.block(copy.rest_);
    uint64_t sum = static_cast<uint64_t>(total_) * kPrime;
    for (const uint64_t lane : copy.lanes_) sum = mix(sum, lane);
    return sum ^ (sum >> 29);
  }

 private:
  static constexpr int64_t kBlock = 32;
  static constexpr uint64_t kPrime = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio, odd

  static uint64_t mix(uint64_t lane, uint64_t word) noexcept {
    const uint64_t product = (lane ^ word) * kPrime;
    return (product << 31) | (product >> 33);
  }
  void block(const unsigned char* p) noexcept {
    for (int i = 0; i < 4; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, p + 8 * i, 8);
      lanes_[i] = mix(lanes_[i], word);
    }
  }

  uint64_t lanes_[4] = {1, 2, 3, 4};
  unsigned char rest_[kBlock] = {};
  int64_t held_ = 0;
  int64_t total_ = 0;
};

}  // namespace tigon
