// c = act(a)·b and its gradients, for any activation: the rows of swiglu and geglu. An activation is a type whose call
// gives value and slope.
#if defined(TIGON_CPU_GATED_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_GATED_INL_
#undef TIGON_CPU_GATED_INL_
#else
#define TIGON_CPU_GATED_INL_
#endif

#include "backend/cpu/math-inl.hpp"
#include "backend/cpu/rows.hpp"

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

template <class T, class Act, bool kStream, class Args>
void gated_forward_typed(const Args& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const T* a = row<T>(args.a, i);
    const T* b = row<T>(args.b, i);
    T* c = row<T>(args.c, i);
    for_row(args.a.sizes[1], [&](int64_t j, auto part) HWY_ATTR {
      const V gate = rounded<T>(Act()(load(a + j, part)).value);
      put<kStream>(hn::Mul(gate, load(b + j, part)), c + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <class Act, class Args>
void gated_forward_rows(const Args& args, bool stream_out, int64_t begin, int64_t end) {
  with_type(args.a.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = stream_out ? gated_forward_typed<T, Act, true, Args> : gated_forward_typed<T, Act, false, Args>;
    run(args, begin, end);
  });
}

template <class T, class Act, bool kStream, class Args>
void gated_backward_typed(const Args& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const T* dc = row<T>(args.dc, i);
    const T* a = row<T>(args.a, i);
    const T* b = row<T>(args.b, i);
    T* da = row<T>(args.da, i);
    T* db = row<T>(args.db, i);
    T* c = args.c ? row<T>(args.c, i) : nullptr;
    for_row(args.a.sizes[1], [&](int64_t j, auto part) HWY_ATTR {
      const Activation act = Act()(load(a + j, part));
      const V bv = load(b + j, part);
      const V dcv = load(dc + j, part);
      const V gate = rounded<T>(act.value);
      put<kStream>(hn::Mul(hn::Mul(dcv, bv), act.slope), da + j, part);
      put<kStream>(hn::Mul(dcv, gate), db + j, part);
      if (c != nullptr) store(hn::Mul(gate, bv), c + j, part);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <class Act, class Args>
void gated_backward_rows(const Args& args, bool stream_out, int64_t begin, int64_t end) {
  with_type(args.a.dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto run = stream_out ? gated_backward_typed<T, Act, true, Args> : gated_backward_typed<T, Act, false, Args>;
    run(args, begin, end);
  });
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
