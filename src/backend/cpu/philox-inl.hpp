// RandomStream's words for many elements at once, a vector of Philox blocks at a time.
#if defined(TIGON_CPU_PHILOX_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_PHILOX_INL_
#undef TIGON_CPU_PHILOX_INL_
#else
#define TIGON_CPU_PHILOX_INL_
#endif

#include "backend/cpu/simd-inl.hpp"
#include "tigon/core/philox.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// Room for the words of n elements: whole vectors of blocks, and a block that begins before the first element.
constexpr int64_t random_buffer(int64_t n) { return n + 4 + 4 * static_cast<int64_t>(HWY_MAX_BYTES / 4); }

// Writes stream.bits(first), stream.bits(first + 1), … for n elements into buffer (of random_buffer(n) words) and
// returns where the first of them stands.
inline const uint32_t* random_words(const RandomStream& stream, uint64_t first, int64_t n, uint32_t* buffer) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < n; ++i) buffer[i] = stream.bits(first + static_cast<uint64_t>(i));
  return buffer;
#else
  // A counter in each 64-bit lane, of whose words only the low halves count: a product of 32 bits then needs no
  // shuffle.
  const hn::ScalableTag<uint64_t> d;
  const D32 d32;
  using Lanes = hn::Vec<decltype(d)>;
  const auto multiply = [&](Lanes a, uint32_t constant)
                            HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::Set(d32, constant)); };
  const Lanes low = hn::Set(d, 0xffffffffu);
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const uint64_t first_block = first / 4;
  const int64_t skip = static_cast<int64_t>(first % 4), blocks = (skip + n + 3) / 4;
  for (int64_t i = 0; i < blocks; i += step) {
    const Lanes index = hn::Add(hn::Set(d, first_block + static_cast<uint64_t>(i)), hn::Iota(d, 0));
    Lanes c0 = index, c1 = hn::ShiftRight<32>(index), c2 = hn::Set(d, stream.step), c3 = hn::Set(d, stream.tensor);
    auto k0 = static_cast<uint32_t>(stream.seed), k1 = static_cast<uint32_t>(stream.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Lanes p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
      c1 = p1;
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
      c3 = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const auto pair = [&](Lanes first_word, Lanes second_word)
                          HWY_ATTR { return hn::Or(hn::And(first_word, low), hn::ShiftLeft<32>(second_word)); };
    hn::StoreInterleaved2(pair(c0, c1), pair(c2, c3), d, reinterpret_cast<uint64_t*>(buffer) + 2 * i);
  }
  return buffer + skip;
#endif
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
