// nf4: one pass to codes and scales, a short one over the scales; and back in one pass. Reading 16-bit values back is
// looking up bytes: the 16 products of a block are rounded once, and each element's two bytes are taken from them by
// its code, 16 codes at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/nf4.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/codes-inl.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/nf4_levels.hpp"
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

constexpr int64_t kBlock = ops::kNf4Block, kGroup = ops::kNf4Group;

// The number of middles that each value exceeds; NaN exceeds all. By halves where a vector holds the middles that are
// looked up, else one after the other.
struct Middles {
  TIGON_SIMD Middles() {
    for (size_t i = 0; i < 8; ++i) {
      thirds[i] = kNf4.middles[std::min<size_t>(2 * i + 1, 14)];  // i even
      fourths[i] = kNf4.middles[2 * i];
    }
  }
  using Numbers = hn::Vec<DI32>;
  TIGON_SIMD static Numbers add_above(V v, V middle, Numbers number, int by) {
    const DI32 di32;
    const auto below = hn::RebindMask(di32, hn::Le(v, middle));
    return hn::IfThenElse(below, number, hn::Add(number, hn::Set(di32, by)));
  }
  TIGON_SIMD Numbers numbers_of(V v) const {
    const DI32 di32;
    auto number = hn::Zero(di32);
#if HWY_MAX_BYTES >= 32
    const auto look_up = [&](const float* table) HWY_ATTR {
      return hn::TableLookupLanes(hn::Load(D(), table), hn::IndicesFromVec(D(), hn::ShiftRight<1>(number)));
    };
    number = add_above(v, set(kNf4.middles[7]), number, 8);
    const auto upper = hn::RebindMask(D(), hn::Gt(number, hn::Zero(di32)));
    number = add_above(v, hn::IfThenElse(upper, set(kNf4.middles[11]), set(kNf4.middles[3])), number, 4);
    number = add_above(v, look_up(thirds), number, 2);
    number = add_above(v, look_up(fourths), number, 1);
#else
    for (const float middle : kNf4.middles) number = add_above(v, set(middle), number, 1);
#endif
    return number;
  }
  static constexpr size_t kTable = std::max<size_t>(8, HWY_MAX_BYTES / sizeof(float));
  HWY_ALIGN float thirds[kTable] = {};
  HWY_ALIGN float fourths[kTable] = {};
};

// Of values[i] · by, two to a byte.
inline void encode_nf4(const float* values, float by, const Middles& middles, uint8_t* codes) {
  HWY_ALIGN uint8_t numbers[kBlock];
  for (int64_t j = 0; j < kBlock; j += lanes()) {
    const V scaled = hn::Mul(hn::Load(D(), values + j), set(by));
    hn::StoreU(hn::DemoteTo(D8(), middles.numbers_of(scaled)), D8(), numbers + j);
  }
  const hn::Rebind<int16_t, D> di16;
  for (int64_t i = 0; i < kBlock / 2; i += lanes()) {  // of two bytes a, b as one number, a + 256·b, to 16·a + b
    const auto two = hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(numbers) + i);
    const auto both = hn::And(hn::Or(hn::ShiftLeft<4>(two), hn::ShiftRight<8>(two)), hn::Set(D16(), 0xff));
    hn::StoreU(hn::DemoteTo(D8(), hn::BitCast(di16, both)), D8(), codes + i);
  }
}

// Magnitudes as integers, among which infinity and NaN are the largest.
inline float largest_of_block(const float* values) {
  const DI32 di32;
  auto largest = hn::Zero(di32);
  for (int64_t j = 0; j < kBlock; j += lanes())
    largest = hn::Max(largest, hn::BitCast(di32, hn::Abs(hn::Load(D(), values + j))));
  return hn::GetLane(hn::BitCast(D(), hn::MaxOfLanes(di32, largest)));
}

// Codes and scales of blocks [begin, end), and the sum of these scales.
double Nf4Blocks(const ops::Nf4Quantize& args, float* scales, int64_t begin, int64_t end) {
  const int64_t n = args.x.sizes[0];
  const Middles middles;
  double sum = 0;
  with_type(args.x.dtype, [&](auto* type) HWY_ATTR {
    const auto* x = args.x.as<std::remove_pointer_t<decltype(type)>>();
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock, size = std::min(kBlock, n - first);
      HWY_ALIGN float values[kBlock] = {};
      for_row(size, [&](int64_t j, auto part) HWY_ATTR { store(load(x + first + j, part), values + j, part); });
      float scale = largest_of_block(values);
      const float least = scale < kNf4Smallest ? kNf4Smallest : scale;
      uint8_t* const codes = args.to.codes.as<uint8_t>() + first / 2;
      if (size == kBlock) {
        encode_nf4(values, 1.0f / least, middles, codes);
      } else {  // as bitsandbytes has it at the end: a quotient, and no smaller scale
        for (float& value : values) value /= least;
        uint8_t whole[kBlock / 2];
        encode_nf4(values, 1.0f, middles, whole);
        std::memcpy(codes, whole, static_cast<size_t>(size / 2 + size % 2));
        scale = least;
      }
      scales[block] = scale;
      sum += static_cast<double>(scale);
    }
  });
  return sum;
}

// The scales of group `group` in 8 bits.
void Nf4Scales(const ops::Nf4Quantize& args, const float* scales, float offset, int64_t group) {
  const int64_t first = group * kGroup, size = std::min(kGroup, args.to.scale_codes.sizes[0] - first);
  HWY_ALIGN float values[kGroup] = {};
  for_row(size, [&](int64_t j, auto part)
                    HWY_ATTR { store(hn::Sub(load(scales + first + j, part), set(offset)), values + j, part); });
  uint8_t whole[kGroup];
  const float scale = block_scale(values);
  encode_block<true>(values, scale, kSignedTables.cells, whole);
  std::memcpy(args.to.scale_codes.as<uint8_t>() + first, whole, static_cast<size_t>(size));
  args.to.group_scales.as<float>()[group] = scale;
}

// out[i] = products[code i] for the elements of a block.
inline void look_up(const uint8_t* codes, const float* products, float* out) {
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    out[2 * i] = products[codes[i] >> 4];
    out[2 * i + 1] = products[codes[i] & 15];
  }
}
template <bool kStream, class T>
void look_up(const uint8_t* codes, const T* products, T* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < kBlock; ++i) out[i] = products[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
#else
  const hn::Full128<uint8_t> d8;
  const hn::Full128<uint16_t> d16;
  const hn::Full128<int16_t> di16;
  const hn::Half<decltype(d8)> half;
  const auto* bits = reinterpret_cast<const uint16_t*>(products);
  const auto a = hn::Load(d16, bits), b = hn::Load(d16, bits + 8);
  const auto lower = [&](auto v)
                         HWY_ATTR { return hn::DemoteTo(half, hn::BitCast(di16, hn::And(v, hn::Set(d16, 0xff)))); };
  const auto upper = [&](auto v) HWY_ATTR { return hn::DemoteTo(half, hn::BitCast(di16, hn::ShiftRight<8>(v))); };
  const auto low = hn::Combine(d8, lower(b), lower(a)), high = hn::Combine(d8, upper(b), upper(a));
  const auto put = [&](auto numbers, T* to) HWY_ATTR {  // of 16 elements
    const auto l = hn::TableLookupBytes(low, numbers), h = hn::TableLookupBytes(high, numbers);
    const auto first = hn::BitCast(d16, hn::InterleaveLower(d8, l, h));
    const auto second = hn::BitCast(d16, hn::InterleaveUpper(d8, l, h));
    auto* p = reinterpret_cast<uint16_t*>(to);
    if constexpr (kStream) {
      hn::Stream(first, d16, p);
      hn::Stream(second, d16, p + 8);
    } else {
      hn::StoreU(first, d16, p);
      hn::StoreU(second, d16, p + 8);
    }
  };
  for (int64_t i = 0; i < kBlock / 2; i += 16) {
    const auto both = hn::LoadU(d8, codes + i);
    const auto odd = hn::And(both, hn::Set(d8, 15));
    const auto even = hn::BitCast(d8, hn::And(hn::ShiftRight<4>(hn::BitCast(d16, both)), hn::Set(d16, 0x0f0f)));
    put(hn::InterleaveLower(d8, even, odd), out + 2 * i);
    put(hn::InterleaveUpper(d8, even, odd), out + 2 * i + 16);
  }
#endif
}

template <bool kStream, class T>
void from_nf4(const ops::Nf4Dequantize& args, T* y, int64_t begin, int64_t end) {
  const ops::Nf4& from = args.from;
  const float offset = *from.offset.as<float>();
  const int64_t n = args.y.sizes[0];
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kBlock, size = std::min(kBlock, n - first);
    float scale = kSignedTables.map[from.scale_codes.as<uint8_t>()[block]];
    scale *= from.group_scales.as<float>()[block / kGroup];
    scale += offset;
    HWY_ALIGN T products[16];
    for_row(16, [&](int64_t j, auto part)
                    HWY_ATTR { store(hn::Mul(load(kNf4.levels + j, part), set(scale)), products + j, part); });
    const auto put = [&](const uint8_t* codes, T* to, auto streams) HWY_ATTR {
      if constexpr (sizeof(T) == 2) {
        look_up<decltype(streams)::value>(codes, products, to);
      } else {
        look_up(codes, products, to);
      }
    };
    const uint8_t* codes = from.codes.as<uint8_t>() + first / 2;
    if (size == kBlock) {
      put(codes, y + first, std::bool_constant<kStream>());
      continue;
    }
    uint8_t whole[kBlock / 2] = {};
    T values[kBlock];
    std::memcpy(whole, codes, static_cast<size_t>(size / 2 + size % 2));
    put(whole, values, std::false_type());
    std::memcpy(y + first, values, static_cast<size_t>(size) * sizeof(T));
  }
  if (kStream) hwy::FlushStream();
}

// Blocks [begin, end).
void Nf4Back(const ops::Nf4Dequantize& args, bool streams, int64_t begin, int64_t end) {
  with_type(args.y.dtype, [&](auto* type) HWY_ATTR {
    auto* y = args.y.as<std::remove_pointer_t<decltype(type)>>();
    streams ? from_nf4<true>(args, y, begin, end) : from_nf4<false>(args, y, begin, end);
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(Nf4Blocks);
HWY_EXPORT(Nf4Scales);
HWY_EXPORT(Nf4Back);

namespace {
constexpr int64_t kTask = 4 * ops::kNf4Group;  // blocks
}  // namespace

void nf4_quantize(const Context& ctx, const ops::Nf4Quantize& args) {
  const int64_t blocks = args.to.scale_codes.sizes[0], groups = args.to.group_scales.sizes[0];
  const int64_t tasks = (blocks + kTask - 1) / kTask;
  const Buffer scales_buffer = ctx.scratch("nf4 scales", blocks * size_of(DType::f32));
  const Buffer sums_buffer = ctx.scratch("nf4 sums", tasks * size_of(DType::f64));
  if (ctx.measuring()) return;
  auto* const scales = reinterpret_cast<float*>(scales_buffer.data());
  auto* const sums = reinterpret_cast<double*>(sums_buffer.data());
  parallel_tasks(ctx, tasks, [&](int64_t task) {
    sums[task] = HWY_DYNAMIC_DISPATCH(Nf4Blocks)(args, scales, task * kTask, std::min(blocks, (task + 1) * kTask));
  });
  double sum = 0;
  for (int64_t task = 0; task < tasks; ++task) sum += sums[task];
  const auto offset = static_cast<float>(blocks > 0 ? sum / static_cast<double>(blocks) : 0);
  if (!std::isfinite(offset)) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(args.to.scale_codes.as<uint8_t>(), blocks, uint8_t{kZeroOfSigned});
    std::fill_n(args.to.group_scales.as<float>(), groups, kNaN);
    *args.to.offset.as<float>() = kNaN;
    return;
  }
  *args.to.offset.as<float>() = offset;
  parallel_tasks(ctx, groups, [&](int64_t group) { HWY_DYNAMIC_DISPATCH(Nf4Scales)(args, scales, offset, group); });
}

void nf4_dequantize(const Context& ctx, const ops::Nf4Dequantize& args) {
  if (ctx.measuring()) return;
  const int64_t blocks = args.from.scale_codes.sizes[0];
  const bool streams = larger_than_cache(args.y.bytes()) && reinterpret_cast<uintptr_t>(args.y.data) % 16 == 0;
  parallel_tasks(ctx, (blocks + kTask - 1) / kTask, [&](int64_t task) {
    HWY_DYNAMIC_DISPATCH(Nf4Back)(args, streams, task * kTask, std::min(blocks, (task + 1) * kTask));
  });
}

}  // namespace tigon::cpu
#endif
