// Vectors of f32 over rows of f32, bf16 or f16. Included once per instruction set by foreach_target.h, hence the
// toggled guard instead of #pragma once.
#if defined(TIGON_CPU_SIMD_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_SIMD_INL_
#undef TIGON_CPU_SIMD_INL_
#else
#define TIGON_CPU_SIMD_INL_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tigon/core/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using D16 = hn::Rebind<uint16_t, D>;
using D32 = hn::RebindToUnsigned<D>;
#define TIGON_SIMD HWY_INLINE HWY_ATTR

TIGON_SIMD int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
TIGON_SIMD V set(float value) { return hn::Set(D(), value); }
TIGON_SIMD V zero() { return hn::Zero(D()); }

// How many lanes of a vector are in use: all, or the first n at the end of a row.
struct Full {};
struct Part {
  int64_t n;
};

// --- load: storage type to f32; unused lanes are zero ---

TIGON_SIMD V load(const float* p, Full) { return hn::LoadU(D(), p); }

TIGON_SIMD V widen_bf16(hn::Vec<D16> bits) { return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(D32(), bits))); }

TIGON_SIMD V load(const bf16* p, Full) { return widen_bf16(hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(p))); }

TIGON_SIMD V load(const f16* p, Full) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < lanes(); ++i) buffer[i] = static_cast<float>(p[i]);
  return hn::Load(D(), buffer);
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(D(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}

template <class T>
TIGON_SIMD V load(const T* p, Part part) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, static_cast<size_t>(part.n) * sizeof(T));
  return load(buffer, Full{});
}

// --- store: f32 to the storage type, to nearest, ties to even ---

TIGON_SIMD hn::Vec<D16> narrow_bf16(V v) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
  const auto quiet_nan = hn::Or(bits, hn::Set(d32, 0x400000u));
  const auto kept = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet_nan, rounded);
#if HWY_TARGET == HWY_SCALAR
  return hn::Vec<D16>(static_cast<uint16_t>(hn::GetLane(kept) >> 16));
#else
  return hn::TruncateTo(D16(), hn::ShiftRight<16>(kept));
#endif
}

TIGON_SIMD void store(V v, float* p, Full) { hn::StoreU(v, D(), p); }
TIGON_SIMD void store(V v, bf16* p, Full) { hn::StoreU(narrow_bf16(v), D16(), reinterpret_cast<uint16_t*>(p)); }
TIGON_SIMD void store(V v, f16* p, Full) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, D(), buffer);
  for (int64_t i = 0; i < lanes(); ++i) p[i] = f16(buffer[i]);
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#endif
}

template <class T>
TIGON_SIMD void store(V v, T* p, Part part) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)];
  store(v, buffer, Full{});
  std::memcpy(p, buffer, static_cast<size_t>(part.n) * sizeof(T));
}

// --- stream: store past the cache; p must be aligned to a whole vector ---

TIGON_SIMD void stream(V v, float* p) { hn::Stream(v, D(), p); }
TIGON_SIMD void stream(V v, bf16* p) { hn::Stream(narrow_bf16(v), D16(), reinterpret_cast<uint16_t*>(p)); }
TIGON_SIMD void stream(V v, f16* p) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  store(v, p, Full{});
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  const D16 bits;
  hn::Stream(hn::BitCast(bits, hn::DemoteTo(d16, v)), bits, reinterpret_cast<uint16_t*>(p));
#endif
}

template <bool kStream, class T>
TIGON_SIMD void put(V v, T* p, Full full) {
  if constexpr (kStream) {
    stream(v, p);
  } else {
    store(v, p, full);
  }
}
template <bool kStream, class T>
TIGON_SIMD void put(V v, T* p, Part part) {
  store(v, p, part);
}

// Asks for the line of p, into the second-level cache: a row asked for ahead of time must not push out the one in use.
template <class T>
TIGON_SIMD void prefetch(const T* p) {
  __builtin_prefetch(p, 0, 2);
}

// v with the unused lanes of the last vector of a row set to zero.
TIGON_SIMD V keep_used(V v, Full) { return v; }
TIGON_SIMD V keep_used(V v, Part part) { return hn::IfThenElseZero(hn::FirstN(D(), static_cast<size_t>(part.n)), v); }

// x rounded to T and back: what a value loses when it is stored.
template <class T>
TIGON_SIMD V rounded(V v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else if constexpr (std::is_same_v<T, bf16>) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Vec<D>(static_cast<float>(bf16(hn::GetLane(v))));
#else
    return widen_bf16(narrow_bf16(v));
#endif
  } else {
    HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(float)];
    store(v, buffer, Full{});
    return load(buffer, Full{});
  }
}

// --- loops over a row ---

// f(j, Full) for each whole vector and f(j, Part) for the rest.
template <class F>
TIGON_SIMD void for_row(int64_t n, const F& f) {
  const int64_t step = lanes();
  int64_t j = 0;
  for (; j + step <= n; j += step) f(j, Full{});
  if (j < n) f(j, Part{n - j});
}

// Σ f(j, …) over a row in four interleaved vectors, so that additions do not wait for one another. f must give zero in
// unused lanes, as products with loaded values do.
template <class F>
TIGON_SIMD float sum_row(int64_t n, const F& f) {
  const int64_t step = lanes();
  V s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  int64_t j = 0;
  for (; j + 4 * step <= n; j += 4 * step) {
    s0 = hn::Add(s0, f(j, Full{}));
    s1 = hn::Add(s1, f(j + step, Full{}));
    s2 = hn::Add(s2, f(j + 2 * step, Full{}));
    s3 = hn::Add(s3, f(j + 3 * step, Full{}));
  }
  for (; j + step <= n; j += step) s0 = hn::Add(s0, f(j, Full{}));
  if (j < n) s1 = hn::Add(s1, f(j, Part{n - j}));
  return hn::GetLane(hn::SumOfLanes(D(), hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// K sums in one pass, of what f gives as K vectors.
template <int K>
struct Vectors {
  TIGON_SIMD Vectors() {}  // written out: on AArch64, GCC compiles an implicit one for the wrong instruction set
  V of[K];
};
template <int K>
struct Sums {
  float of[K];
};
template <int K, class F>
TIGON_SIMD Sums<K> sum_row_each(int64_t n, const F& f) {
  const int64_t step = lanes();
  Vectors<K> even, odd;
  for (int k = 0; k < K; ++k) even.of[k] = odd.of[k] = zero();
  const auto add = [](Vectors<K>& sum, const Vectors<K>& v) HWY_ATTR {
    for (int k = 0; k < K; ++k) sum.of[k] = hn::Add(sum.of[k], v.of[k]);
  };
  int64_t j = 0;
  for (; j + 2 * step <= n; j += 2 * step) {
    add(even, f(j, Full{}));
    add(odd, f(j + step, Full{}));
  }
  if (j + step <= n) add(even, f(j, Full{})), j += step;
  if (j < n) add(odd, f(j, Part{n - j}));
  add(even, odd);
  Sums<K> sums;
  for (int k = 0; k < K; ++k) sums.of[k] = hn::GetLane(hn::SumOfLanes(D(), even.of[k]));
  return sums;
}

// Calls f with a null pointer of the storage type.
template <class F>
TIGON_SIMD void with_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::bf16: return f(static_cast<bf16*>(nullptr));
    case DType::f16: return f(static_cast<f16*>(nullptr));
    default: return;  // ops checked it
  }
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
