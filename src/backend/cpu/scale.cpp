// scale: one pass in place, or none.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/scale.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/simd-inl.hpp"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

void ScaleElements(const Tensor& x, float factor, int64_t begin, int64_t end) {
  with_type(x.dtype, [&](auto* type) HWY_ATTR {
    auto* p = x.as<std::remove_pointer_t<decltype(type)>>() + begin;
    const V by = hn::Set(D(), factor);
    for_row(end - begin, [&](int64_t j, auto part) HWY_ATTR { store(hn::Mul(load(p + j, part), by), p + j, part); });
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(ScaleElements);

void scale(const Context& ctx, const ops::Scale& args) {
  if (ctx.measuring()) return;
  const float factor = *args.factor.as<float>();
  if (factor == 1.0f) return;
  constexpr int64_t kBlock = int64_t{1} << 16;
  const int64_t n = args.x.elements();
  const auto run = HWY_DYNAMIC_DISPATCH(ScaleElements);
  parallel_tasks(ctx, (n + kBlock - 1) / kBlock,
                 [&](int64_t block) { run(args.x, factor, block * kBlock, std::min(n, (block + 1) * kBlock)); });
}

}  // namespace tigon::cpu
#endif
