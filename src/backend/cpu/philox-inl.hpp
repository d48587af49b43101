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

#if HWY_TARGET != HWY_SCALAR
// Both halves of the 64-bit products of all lanes.
struct Product {
  hn::Vec<D32> low;
  hn::Vec<D32> high;
};
TIGON_SIMD Product multiply(hn::Vec<D32> a, uint32_t constant) {
  const D32 d;
  const auto b = hn::Set(d, constant);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::Shuffle2301(a), b);
  return {hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even)),
          hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)))};
}
#endif

// Writes stream.bits(first), stream.bits(first + 1), … for n elements into buffer (of random_buffer(n) words) and
// returns where the first of them stands.
inline const uint32_t* random_words(const RandomStream& stream, uint64_t first, int64_t n, uint32_t* buffer) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < n; ++i) buffer[i] = stream.bits(first + static_cast<uint64_t>(i));
  return buffer;
#else
  const D32 d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const uint64_t first_block = first / 4;
  const int64_t skip = static_cast<int64_t>(first % 4), blocks = (skip + n + 3) / 4;
  for (int64_t i = 0; i < blocks; i += step) {
    const uint64_t index = first_block + static_cast<uint64_t>(i);
    const auto base = hn::Set(d, static_cast<uint32_t>(index));
    auto c0 = hn::Add(base, hn::Iota(d, 0));
    const auto carry = hn::IfThenElseZero(hn::Lt(c0, base), hn::Set(d, 1u));
    auto c1 = hn::Add(hn::Set(d, static_cast<uint32_t>(index >> 32)), carry);
    auto c2 = hn::Set(d, stream.step), c3 = hn::Set(d, stream.tensor);
    auto k0 = static_cast<uint32_t>(stream.seed), k1 = static_cast<uint32_t>(stream.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Product p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
      c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
      c1 = p1.low;
      c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
      c3 = p0.low;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, buffer + 4 * i);
  }
  return buffer + skip;
#endif
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
