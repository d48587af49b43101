// Blocks of 256 numbers in 8 bits with a scale each (backend/dynamic_map.hpp), from and to f32. Tables are read by
// plain loads, several indices at a time: where it was tried, on AVX-512 and AVX2, gathers are slower.
#if defined(TIGON_CPU_CODES_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_CODES_INL_
#undef TIGON_CPU_CODES_INL_
#else
#define TIGON_CPU_CODES_INL_
#endif

#include <cstring>
#include <limits>

#include "backend/cpu/simd-inl.hpp"
#include "backend/dynamic_map.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

using DI32 = hn::RebindToSigned<D>;
using D8 = hn::Rebind<uint8_t, D>;

// out[i] = table[indices[i]] for a block.
template <class Index, class Entry>
void look_up_block(const Index* indices, const Entry* table, Entry* out) {
  constexpr size_t kAtOnce = sizeof(uint64_t) / sizeof(Index);
  for (size_t j = 0; j < 256; j += kAtOnce) {
    Index some[kAtOnce];
    uint64_t word;
    std::memcpy(&word, indices + j, sizeof(word));
    for (size_t i = 0; i < kAtOnce; ++i) some[i] = static_cast<Index>(word >> 8 * sizeof(Index) * i);
    for (size_t i = 0; i < kAtOnce; ++i) out[j + i] = table[some[i]];
  }
}

inline void decode_block(const uint8_t* codes, float scale, const DynamicMap& map, float* out) {
  look_up_block(codes, map.data(), out);
  for (int64_t j = 0; j < 256; j += lanes()) store(hn::Mul(load(out + j, Full{}), set(scale)), out + j, Full{});
}

// What a block is scaled by: its largest magnitude, or 0 where that is below f32's normal range. Not finite where not
// all of it is: as integers, infinity and NaN are larger than any number.
inline float block_scale(const float* values) {
  const DI32 di32;
  auto largest = hn::Zero(di32);
  for (int64_t j = 0; j < 256; j += lanes())
    largest = hn::Max(largest, hn::BitCast(di32, hn::Abs(load(values + j, Full{}))));
  const float scale = hn::GetLane(hn::BitCast(D(), hn::MaxOfLanes(di32, largest)));
  return scale < std::numeric_limits<float>::min() ? 0.0f : scale;
}

// An element of either that is not finite any more would take its block with it.
inline void keep_finite_block(float* a, float* b) {
  for (int64_t j = 0; j < 256; j += lanes()) {
    const V x = load(a + j, Full{}), y = load(b + j, Full{});
    const auto finite = hn::And(hn::IsFinite(x), hn::IsFinite(y));
    store(hn::IfThenElseZero(finite, x), a + j, Full{});
    store(hn::IfThenElseZero(finite, y), b + j, Full{});
  }
}

// Finite values; they become what they are times 1 / scale.
template <bool kSigned>
void encode_block(float* values, float scale, const DynamicCells& cells, uint8_t* codes) {
  const DI32 di32;
  const V by = set(scale > 0 ? 1.0f / scale : 0.0f);
  const auto bits_of = [&](V scaled) HWY_ATTR { return hn::BitCast(di32, hn::Min(hn::Abs(scaled), set(1.0f))); };
  HWY_ALIGN uint16_t places[256];
  HWY_ALIGN uint32_t entries[256];
  for (int64_t j = 0; j < 256; j += lanes()) {
    const V scaled = hn::Mul(load(values + j, Full{}), by);
    store(scaled, values + j, Full{});
    const auto cell = hn::Sub(hn::ShiftRight<16>(bits_of(scaled)), hn::Set(di32, static_cast<int32_t>(kFirstCell)));
    hn::StoreU(hn::DemoteTo(D16(), cell), D16(), places + j);  // what is below 0 becomes 0
  }
  look_up_block(places, cells.data(), entries);
  for (int64_t j = 0; j < 256; j += lanes()) {
    const V scaled = load(values + j, Full{});
    const auto entry = hn::BitCast(di32, hn::Load(D32(), entries + j));
    auto lower = hn::And(bits_of(scaled), hn::Set(di32, 0xffff));
    const auto negative = hn::ShiftRight<31>(hn::BitCast(di32, scaled));  // all bits or none
    if constexpr (kSigned) lower = hn::Sub(lower, negative);              // a middle is exceeded when it is reached
    const auto exceeds = hn::Gt(lower, hn::And(entry, hn::Set(di32, static_cast<int32_t>(kCellMiddle))));
    auto code = hn::Add(hn::ShiftRight<17>(entry), hn::IfThenElseZero(exceeds, hn::Set(di32, 1)));
    if constexpr (kSigned) {
      const auto zero_code = hn::Set(di32, kZeroOfSigned);
      const auto down = hn::Sub(zero_code, hn::Min(code, zero_code));  // −1 has no entry
      code = hn::IfVecThenElse(negative, down, hn::Add(code, zero_code));
    }
    hn::StoreU(hn::DemoteTo(D8(), code), D8(), codes + j);
  }
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
