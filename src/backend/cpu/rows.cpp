#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rows.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/rows.hpp"
#include "backend/cpu/simd-inl.hpp"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

void WidenRow(const Tensor& t, float bias, float missing, int64_t n, float* out) {
  if (!t) {
    for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(set(missing), out + j, part); });
    return;
  }
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    const auto* p = t.as<std::remove_pointer_t<decltype(type)>>();
    for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(hn::Add(set(bias), load(p + j, part)), out + j, part); });
  });
}

void ReducePartials(const float* partials, int64_t blocks, int64_t stride, int64_t begin, int64_t end, const Tensor& t,
                    bool accumulate) {
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    auto* out = t.as<std::remove_pointer_t<decltype(type)>>();
    for_row(end - begin, [&](int64_t j, auto part) HWY_ATTR {
      const int64_t column = begin + j;
      V sum = zero();
      for (int64_t b = 0; b < blocks; ++b) sum = hn::Add(sum, load(partials + b * stride + column, part));
      if (accumulate) sum = hn::Add(sum, load(out + column, part));
      store(sum, out + column, part);
    });
  });
}

// Each vector is read before it is written, and the writes never overtake the reads.
void NarrowInPlace(void* row, int64_t n) {
  const float* in = static_cast<const float*>(row);
  bf16* out = static_cast<bf16*>(row);
  for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(load(in + j, part), out + j, part); });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(WidenRow);
HWY_EXPORT(NarrowInPlace);
HWY_EXPORT(ReducePartials);

void narrow_in_place(void* row, int64_t n) { HWY_DYNAMIC_DISPATCH(NarrowInPlace)(row, n); }

void widen_row(const Tensor& t, float bias, float missing, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(WidenRow)(t, bias, missing, n, out);
}

void reduce_partials(const Context& ctx, const float* partials, int64_t blocks, int64_t n, const Tensor& t,
                     bool accumulate) {
  const Blocks columns(n, 256, 64);
  const auto run = HWY_DYNAMIC_DISPATCH(ReducePartials);
  parallel_tasks(ctx, columns.count, [&](int64_t task) {
    run(partials, blocks, n, columns.begin(task), columns.end(task), t, accumulate);
  });
}

}  // namespace tigon::cpu
#endif
