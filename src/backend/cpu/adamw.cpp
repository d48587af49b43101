// adamw: one pass over all arrays, a piece at a time. A piece that is not f32 is widened into a buffer in the nearest
// cache, so one loop serves every mix of types; memory is the limit, not the loop.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/adamw.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/adamw.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/philox-inl.hpp"
#include "backend/cpu/pieces-inl.hpp"
// clang-format on

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

using Bits = hn::Vec<D32>;

// v as a value of the type, up or down by chance; random holds 16 bits. NaN and infinity stay.
TIGON_SIMD V stochastic_bf16(V v, Bits random) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, v);
  const auto moved = hn::And(hn::Add(bits, random), hn::Set(d32, 0xffff0000u));
  const auto special = hn::Eq(hn::And(bits, hn::Set(d32, 0x7f800000u)), hn::Set(d32, 0x7f800000u));
  return hn::BitCast(D(), hn::IfThenElse(special, bits, moved));
}

TIGON_SIMD V stochastic_f16(V v, Bits random) {
  const D d;
  const D32 d32;
  const V magnitude = hn::Abs(v);
  // The step of f16 at this magnitude: 2^(exponent − 10), but not below the subnormals' 2^-24.
  const V power = hn::BitCast(d, hn::And(hn::BitCast(d32, magnitude), hn::Set(d32, 0x7f800000u)));
  const V step = hn::Mul(hn::Max(power, set(0x1p-14f)), set(0x1p-10f));
  const V steps = hn::Div(magnitude, step);
  const V cut = hn::Floor(steps);
  const V chance =
      hn::MulAdd(hn::Sub(steps, cut), set(65536.0f), hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), random)));
  const V moved = hn::Mul(hn::Add(cut, hn::IfThenElseZero(hn::Ge(chance, set(65536.0f)), set(1.0f))), step);
  const auto finite = hn::Lt(magnitude, set(0x1p17f));  // beyond f16's range there is nothing to choose
  return hn::IfThenElse(finite, hn::CopySign(moved, v), v);
}

// Rounds n f32 values to the type of t by chance; `shift` says which half of the words to use.
template <int kShift, uint32_t kTimes = 1>
void round_piece(float* values, DType dtype, const uint32_t* words, int64_t n) {
  const D32 d32;
  const auto low_half = hn::Set(d32, 0xffffu);
  for_row(n, [&](int64_t j, auto part) HWY_ATTR {
    // The buffer of words is longer than n, so a whole vector may be read.
    Bits word = hn::LoadU(d32, words + j);
    if constexpr (kTimes != 1) word = hn::Mul(word, hn::Set(d32, kTimes));
    const Bits random = hn::And(hn::ShiftRight<kShift>(word), low_half);
    const V v = load(values + j, part);
    store(dtype == DType::bf16 ? stochastic_bf16(v, random) : stochastic_f16(v, random), values + j, part);
  });
}

template <bool kStream>
void copy_param(const float* values, const Tensor& t, int64_t begin, int64_t n) {
  with_type(t.dtype, [&](auto* type) HWY_ATTR {
    auto* out = t.as<std::remove_pointer_t<decltype(type)>>() + begin;
    for_row(n, [&](int64_t j, auto part) HWY_ATTR { put<kStream>(load(values + j, part), out + j, part); });
  });
}

void AdamwPieces(const ops::Adamw& args, const AdamwFactors& factors, bool stream_copy, int64_t begin, int64_t end) {
  HWY_ALIGN float param_buffer[kPiece];
  HWY_ALIGN float grad_buffer[kPiece];
  HWY_ALIGN float m_buffer[kPiece];
  HWY_ALIGN float v_buffer[kPiece];
  HWY_ALIGN uint32_t words_buffer[random_buffer(kPiece) + HWY_MAX_BYTES / 4];
  const V grad_scale = set(factors.grad_scale);
  const V beta1 = set(factors.beta1), beta2 = set(factors.beta2);
  const V one_minus_beta1 = set(factors.one_minus_beta1), one_minus_beta2 = set(factors.one_minus_beta2);
  const V root_correction2 = set(factors.root_correction2), eps = set(factors.eps);
  const V step_size = set(factors.step_size), decay = set(factors.decay);
  const bool stochastic = args.rounding == ops::Rounding::stochastic;
  const RandomStream stream{.seed = args.seed, .step = static_cast<uint32_t>(args.step), .tensor = args.tensor_id};

  for (int64_t first = begin; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    float* const param = read_piece(args.param, first, 1, n, param_buffer);
    const float* const grad = read_piece(args.grad, first, 1, n, grad_buffer);
    float* const m = read_piece(args.m, first, 1, n, m_buffer);
    float* const v = read_piece(args.v, first, 1, n, v_buffer);
    for_row(n, [&](int64_t j, auto part) HWY_ATTR {
      const V g = hn::Mul(load(grad + j, part), grad_scale);
      const V new_m = hn::MulAdd(beta1, load(m + j, part), hn::Mul(one_minus_beta1, g));
      const V new_v = hn::MulAdd(beta2, load(v + j, part), hn::Mul(hn::Mul(one_minus_beta2, g), g));
      const V denominator = hn::MulAdd(hn::Sqrt(new_v), root_correction2, eps);
      const V old = load(param + j, part);
      const V update = hn::MulAdd(step_size, hn::Div(new_m, denominator), hn::Mul(decay, old));
      store(hn::Sub(old, update), param + j, part);
      store(new_m, m + j, part);
      store(new_v, v + j, part);
    });

    const auto element = static_cast<uint64_t>(args.first_element + first);
    const bool narrow_param = args.param.dtype != DType::f32;
    if (stochastic && (narrow_param || m == m_buffer || v == v_buffer)) {
      const uint32_t* words = random_words(stream, element, n, words_buffer);
      if (narrow_param) round_piece<0>(param, args.param.dtype, words, n);
      if (m == m_buffer) round_piece<16>(m, DType::bf16, words, n);
      if (v == v_buffer) round_piece<16, ops::kBitsOfV>(v, DType::bf16, words, n);
    } else if (narrow_param && args.param_copy) {
      // The copy is of the parameter as stored.
      with_type(args.param.dtype, [&](auto* type) HWY_ATTR {
        using T = std::remove_pointer_t<decltype(type)>;
        for_row(n, [&](int64_t j, auto part) HWY_ATTR { store(rounded<T>(load(param + j, part)), param + j, part); });
      });
    }
    if (narrow_param) write_piece(param, args.param, first, 1, n);
    if (m == m_buffer) write_piece(m, args.m, first, 1, n);
    if (v == v_buffer) write_piece(v, args.v, first, 1, n);
    if (args.param_copy && stream_copy) copy_param<true>(param, args.param_copy, first, n);
    if (args.param_copy && !stream_copy) copy_param<false>(param, args.param_copy, first, n);
  }
  if (stream_copy) hwy::FlushStream();
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(AdamwPieces);

void adamw(const Context& ctx, const ops::Adamw& args) {
  if (ctx.measuring()) return;
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  const AdamwFactors factors{
      .grad_scale = args.grad_scale ? *args.grad_scale.as<float>() : 1.0f,
      .beta1 = static_cast<float>(args.beta1),
      .beta2 = static_cast<float>(args.beta2),
      .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
      .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
      .root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .eps = static_cast<float>(args.eps),
      .step_size = static_cast<float>(args.lr / correction1),
      .decay = static_cast<float>(args.lr * args.weight_decay),
  };
  // Blocks of whole pieces, so that streamed stores stay aligned.
  constexpr int64_t kBlock = int64_t{1} << 16;
  const int64_t n = args.param.sizes[0];
  const bool stream_copy = args.param_copy && larger_than_cache(args.param_copy.bytes()) &&
                           reinterpret_cast<uintptr_t>(args.param_copy.data) % 64 == 0;
  const auto run = HWY_DYNAMIC_DISPATCH(AdamwPieces);
  parallel_tasks(ctx, (n + kBlock - 1) / kBlock, [&](int64_t block) {
    run(args, factors, stream_copy, block * kBlock, std::min(n, (block + 1) * kBlock));
  });
}

}  // namespace tigon::cpu
#endif
