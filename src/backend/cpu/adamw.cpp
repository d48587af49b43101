// adamw: one pass over all arrays, a piece at a time. A piece that is not f32 is widened into a buffer in the nearest
// cache, so one loop serves every mix of types; memory is the limit, not the loop. States in 8 bits are decoded into
// the same buffers, and encoded from there block by block.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/adamw.cpp"  // NOLINT
#include <hwy/foreach_target.h>
// clang-format off: must follow foreach_target.h
#include "backend/cpu/adamw.hpp"
#include "backend/cpu/codes-inl.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/parallel.hpp"
#include "backend/cpu/philox-inl.hpp"
#include "backend/cpu/pieces-inl.hpp"
#include "backend/cpu/rounding-inl.hpp"
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace tigon::cpu::HWY_NAMESPACE {

// The factors of an update in every lane, and the update itself.
struct AdamwLanes {
  explicit AdamwLanes(const AdamwFactors& f)
      : grad_scale(set(f.grad_scale)),
        beta1(set(f.beta1)),
        beta2(set(f.beta2)),
        one_minus_beta1(set(f.one_minus_beta1)),
        one_minus_beta2(set(f.one_minus_beta2)),
        root_correction2(set(f.root_correction2)),
        eps(set(f.eps)),
        step_size(set(f.step_size)),
        decay(set(f.decay)) {}

  TIGON_SIMD void update(V grad, V& param, V& m, V& v) const {
    const V g = hn::Mul(grad, grad_scale);
    m = hn::MulAdd(beta1, m, hn::Mul(one_minus_beta1, g));
    v = hn::MulAdd(beta2, v, hn::Mul(hn::Mul(one_minus_beta2, g), g));
    const V denominator = hn::MulAdd(hn::Sqrt(v), root_correction2, eps);
    param = hn::Sub(param, hn::MulAdd(step_size, hn::Div(m, denominator), hn::Mul(decay, param)));
  }

  V grad_scale, beta1, beta2, one_minus_beta1, one_minus_beta2, root_correction2, eps, step_size, decay;
};

// Where all is bf16 and rounded by chance, as under bf16-sr: no buffers but that of the random words.
void AdamwHalves(const ops::Adamw& args, const AdamwFactors& factors, bool, int64_t begin, int64_t end) {
  HWY_ALIGN uint32_t words_buffer[random_buffer(kPiece) + HWY_MAX_BYTES / 4];
  const D32 d32;
  const AdamwLanes lanes(factors);
  const auto low_half = hn::Set(d32, 0xffffu), of_v = hn::Set(d32, ops::kBitsOfV);
  const RandomStream stream{.seed = args.seed, .step = static_cast<uint32_t>(args.step), .tensor = args.tensor_id};
  for (int64_t first = begin; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    const auto at = [first](const Tensor& t) { return t.as<bf16>() + first; };
    bf16 *const params = at(args.param), *const ms = at(args.m), *const vs = at(args.v);
    const bf16* const grads = at(args.grad);
    const uint32_t* words = random_words(stream, static_cast<uint64_t>(args.first_element + first), n, words_buffer);
    for_row(n, [&](int64_t j, auto part) HWY_ATTR {
      // The buffer of words is longer than n, so a whole vector may be read.
      const Bits word = hn::LoadU(d32, words + j);
      V param = load(params + j, part), m = load(ms + j, part), v = load(vs + j, part);
      lanes.update(load(grads + j, part), param, m, v);
      store(stochastic_bf16(param, hn::And(word, low_half)), params + j, part);
      store(stochastic_bf16(m, hn::ShiftRight<16>(word)), ms + j, part);
      store(stochastic_bf16(v, hn::ShiftRight<16>(hn::Mul(word, of_v))), vs + j, part);
    });
  }
}

static_assert(kPiece % ops::kCodeBlock == 0);

// f(in_piece, first, size) for each block of a piece of n elements from `first` on; the last of an array may be
// shorter.
template <class F>
void for_code_blocks(int64_t first, int64_t n, const F& f) {
  for (int64_t i = 0; i < n; i += ops::kCodeBlock) f(i, first + i, std::min(n - i, ops::kCodeBlock));
}

float* decoded_piece(const Tensor& codes, const Tensor& scales, const DynamicMap& map, int64_t first, int64_t n,
                     float* out) {
  for_code_blocks(first, n, [&](int64_t in_piece, int64_t begin, int64_t size) {
    const uint8_t* from = codes.as<uint8_t>() + begin;
    uint8_t whole[ops::kCodeBlock] = {};
    if (size < ops::kCodeBlock) from = static_cast<uint8_t*>(std::memcpy(whole, from, static_cast<size_t>(size)));
    decode_block(from, scales.as<float>()[begin / ops::kCodeBlock], map, out + in_piece);
  });
  return out;
}

template <bool kSigned>
void encode(float* values, float scale, const DynamicCells& cells, const Tensor& codes, const Tensor& scales,
            int64_t begin, int64_t size) {
  scales.as<float>()[begin / ops::kCodeBlock] = scale;
  uint8_t* const to = codes.as<uint8_t>() + begin;
  uint8_t whole[ops::kCodeBlock];
  encode_block<kSigned>(values, scale, cells, size < ops::kCodeBlock ? whole : to);
  if (size < ops::kCodeBlock) std::memcpy(to, whole, static_cast<size_t>(size));
}

void encode_piece(const ops::Adamw& args, float* m, float* v, int64_t first, int64_t n) {
  for_code_blocks(first, n, [&](int64_t in_piece, int64_t begin, int64_t size) {
    float *const block_m = m + in_piece, *const block_v = v + in_piece;
    for (float* values : {block_m, block_v}) std::fill(values + size, values + ops::kCodeBlock, 0.0f);
    float m_scale = block_scale(block_m), v_scale = block_scale(block_v);
    if (!std::isfinite(m_scale) || !std::isfinite(v_scale)) {
      keep_finite_block(block_m, block_v);
      m_scale = block_scale(block_m);
      v_scale = block_scale(block_v);
    }
    encode<true>(block_m, m_scale, kSignedTables.cells, args.m, args.m_scale, begin, size);
    encode<false>(block_v, v_scale, kUnsignedTables.cells, args.v, args.v_scale, begin, size);
  });
}

void AdamwPieces(const ops::Adamw& args, const AdamwFactors& factors, bool stream_copy, int64_t begin, int64_t end) {
  HWY_ALIGN float param_buffer[kPiece];
  HWY_ALIGN float grad_buffer[kPiece];
  HWY_ALIGN float m_buffer[kPiece];
  HWY_ALIGN float v_buffer[kPiece];
  HWY_ALIGN uint32_t words_buffer[random_buffer(kPiece) + HWY_MAX_BYTES / 4];
  const AdamwLanes lanes(factors);
  const bool stochastic = args.rounding == ops::Rounding::stochastic;
  const bool coded = args.m.dtype == DType::u8;
  const bool narrow_param = args.param.dtype != DType::f32;
  const bool narrow_m = args.m.dtype == DType::bf16, narrow_v = args.v.dtype == DType::bf16;
  const RandomStream stream{.seed = args.seed, .step = static_cast<uint32_t>(args.step), .tensor = args.tensor_id};

  for (int64_t first = begin; first < end; first += kPiece) {
    const int64_t n = std::min(kPiece, end - first);
    float* const param = read_piece(args.param, first, 1, n, param_buffer);
    const float* const grad = read_piece(args.grad, first, 1, n, grad_buffer);
    float* const m = coded ? decoded_piece(args.m, args.m_scale, kSignedTables.map, first, n, m_buffer)
                           : read_piece(args.m, first, 1, n, m_buffer);
    float* const v = coded ? decoded_piece(args.v, args.v_scale, kUnsignedTables.map, first, n, v_buffer)
                           : read_piece(args.v, first, 1, n, v_buffer);
    for_row(n, [&](int64_t j, auto part) HWY_ATTR {
      V new_param = load(param + j, part), new_m = load(m + j, part), new_v = load(v + j, part);
      lanes.update(load(grad + j, part), new_param, new_m, new_v);
      store(new_param, param + j, part);
      store(new_m, m + j, part);
      store(new_v, v + j, part);
    });

    const auto element = static_cast<uint64_t>(args.first_element + first);
    const uint32_t* words = nullptr;
    if (stochastic && (narrow_param || narrow_m || narrow_v)) {
      words = random_words(stream, element, n, words_buffer);
      if (narrow_m) round_piece<16>(m, DType::bf16, words, n);
      if (narrow_v) round_piece<16, ops::kBitsOfV>(v, DType::bf16, words, n);
    }
    store_param(param, args.param, args.param_copy, first, n, words, stream_copy);
    if (narrow_m) write_piece(m, args.m, first, 1, n);
    if (narrow_v) write_piece(v, args.v, first, 1, n);
    if (coded) encode_piece(args, m, v, first, n);
  }
  if (stream_copy) hwy::FlushStream();
}

}  // namespace tigon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon::cpu {

HWY_EXPORT(AdamwPieces);
HWY_EXPORT(AdamwHalves);

namespace {

// Blocks of whole pieces, so that streamed stores stay aligned.
constexpr int64_t kBlock = int64_t{1} << 16;

// One array's update, ready to run block by block.
struct Update {
  const ops::Adamw* args;
  AdamwFactors factors;
  bool stream_copy;
  void (*run)(const ops::Adamw&, const AdamwFactors&, bool, int64_t, int64_t);
  int64_t end_block;  // counted through all arrays

  int64_t blocks() const { return (args->param.sizes[0] + kBlock - 1) / kBlock; }
};

Update update_of(const ops::Adamw& args) {
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step), correction2 = 1.0 - std::pow(args.beta2, step);
  const auto halves = [&] {
    for (const Tensor* t : {&args.param, &args.grad, &args.m, &args.v}) {
      if (t->dtype != DType::bf16) return false;
    }
    return args.rounding == ops::Rounding::stochastic && !args.param_copy;
  };
  return {.args = &args,
          .factors =
              {
                  .grad_scale = args.grad_scale ? *args.grad_scale.as<float>() : 1.0f,
                  .beta1 = static_cast<float>(args.beta1),
                  .beta2 = static_cast<float>(args.beta2),
                  .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
                  .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
                  .root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
                  .eps = static_cast<float>(args.eps),
                  .step_size = static_cast<float>(args.lr / correction1),
                  .decay = static_cast<float>(args.lr * args.weight_decay),
              },
          .stream_copy = args.param_copy && larger_than_cache(args.param_copy.bytes()) &&
                         reinterpret_cast<uintptr_t>(args.param_copy.data) % 64 == 0,
          .run = halves() ? HWY_DYNAMIC_DISPATCH(AdamwHalves) : HWY_DYNAMIC_DISPATCH(AdamwPieces),
          .end_block = 0};
}

}  // namespace

void adamw_list(const Context& ctx, const ops::AdamwList& args) {
  if (ctx.measuring()) return;
  constexpr size_t kAtOnce = 256;  // as many as stand here
  std::array<Update, kAtOnce> updates;
  for (size_t done = 0; done < args.updates.size(); done += kAtOnce) {
    const auto some = args.updates.subspan(done, std::min(kAtOnce, args.updates.size() - done));
    int64_t blocks = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      updates[i] = update_of(some[i]);
      updates[i].end_block = blocks += updates[i].blocks();
    }
    const Update *const first = updates.data(), *const end = first + some.size();
    parallel_tasks(ctx, blocks, [&](int64_t block) {
      const Update& u =
          *std::upper_bound(first, end, block, [](int64_t b, const Update& update) { return b < update.end_block; });
      const int64_t begin = (block - (u.end_block - u.blocks())) * kBlock;
      u.run(*u.args, u.factors, u.stream_copy, begin, std::min(u.args->param.sizes[0], begin + kBlock));
    });
  }
}

void adamw(const Context& ctx, const ops::Adamw& args) { cpu::adamw_list(ctx, {.updates = {&args, 1}}); }

}  // namespace tigon::cpu
#endif
