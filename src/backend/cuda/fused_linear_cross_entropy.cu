// fused_linear_cross_entropy. The tokens that count are listed first, on the device, and taken in chunks:
//
//   rows = x of the chunk      logits = rows·Wᵀ + b      loss, and dlogits in place
//   dW += dlogitsᵀ·rows        dx = dlogits·W
//
// The host never learns how many tokens count: the device skips the chunks past the last of them. The chunk that holds
// the last of them is filled up with rows of zeros.
//
// The lean walk keeps no chunk of whole logits: it goes twice over panels of the vocabulary, first for each row's
// softmax, then, from the last panel to the first, for the gradient. That is a fourth product for a fraction of the
// memory, and the weight itself may come in panels.
#include <algorithm>

#include "backend/cuda/capture.cuh"
#include "backend/cuda/column_sums.hpp"
#include "backend/cuda/conditional.hpp"
#include "backend/cuda/copy_rows.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/dweight_sums.hpp"
#include "backend/cuda/lib/gemm.hpp"
#include "backend/cuda/loss.cuh"
#include "tigon/memory/arena.hpp"

namespace tigon::cuda {

namespace {

using ops::FusedLinearCrossEntropyForward;

// The products here are large; more workspace than this does not make them faster.
constexpr int64_t kGemmWorkspace = int64_t{4} << 20;
// Rows of 16-bit or 32-bit elements, moved as Unit.
struct RowMove {
  const std::byte* from;
  std::byte* to;
  int64_t from_stride, to_stride, row_bytes;
};

template <class Unit>
__device__ __forceinline__ void move_row(const RowMove& move, int64_t from, int64_t to) {
  const auto* source = reinterpret_cast<const Unit*>(move.from + from * move.from_stride);
  auto* target = reinterpret_cast<Unit*>(move.to + to * move.to_stride);
  for (int64_t j = threadIdx.x; j < move.row_bytes / static_cast<int64_t>(sizeof(Unit)); j += blockDim.x) {
    target[j] = from < 0 ? Unit{} : source[j];
  }
}

// Row i of the chunk from its token; zeros where there is none.
template <class Unit>
__global__ void __launch_bounds__(256) gather_kernel(const LossBatch batch, int64_t first, RowMove move) {
  move_row<Unit>(move, batch.rows[first + blockIdx.x].token, blockIdx.x);
}

// And back to it.
template <class Unit>
__global__ void __launch_bounds__(256) scatter_kernel(const LossBatch batch, int64_t first, RowMove move) {
  const int64_t token = batch.rows[first + blockIdx.x].token;
  if (token >= 0) move_row<Unit>(move, blockIdx.x, token);
}

// Zeros for the tokens that do not count.
template <class Unit>
__global__ void __launch_bounds__(256) clear_kernel(const LossBatch batch, RowMove move) {
  if (!batch.counts(batch.target_of(blockIdx.x))) move_row<Unit>(move, -1, blockIdx.x);
}

template <class T>
__global__ void __launch_bounds__(256)
    scatter_narrow_kernel(const LossBatch batch, int64_t first, Rows<const float> from, Rows<T> to, int64_t columns) {
  const int64_t token = batch.rows[first + blockIdx.x].token;
  if (token < 0) return;
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
    store_one(to.at(token) + j, from.at(blockIdx.x)[j]);
  }
}

RowMove row_move(const Tensor& from, const Tensor& to) {
  const int64_t unit = size_of(to.dtype);
  return {static_cast<const std::byte*>(from.data), static_cast<std::byte*>(to.data), from.strides[0] * unit,
          to.strides[0] * unit, to.sizes[1] * unit};
}

// Calls f with a pointer to the widest unit that both sides can be moved by.
template <class F>
void with_unit(const RowMove& move, F&& f) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(move.from) | reinterpret_cast<uintptr_t>(move.to) |
                        static_cast<uint64_t>(move.from_stride | move.to_stride | move.row_bytes);
  if (bits % 16 == 0) return f(static_cast<uint4*>(nullptr));
  if (bits % 4 == 0) return f(static_cast<uint32_t*>(nullptr));
  f(static_cast<uint16_t*>(nullptr));
}

// [0, total) in parts of `size`, the last one shorter.
struct Parts {
  int64_t total, size, count;
  Parts(int64_t elements, int64_t part) : total(elements), size(part), count(divide_up(elements, part)) {}
  int64_t begin(int64_t part) const { return part * size; }
  int64_t end(int64_t part) const { return std::min(total, begin(part + 1)); }
};

// Those of a chunk.
struct Tokens {
  int64_t begin, end;
  bool first, last;
  int64_t count() const { return end - begin; }
};

class Walk {
 public:
  Walk(const Context& ctx, const FusedLinearCrossEntropyForward& args)
      : ctx_(ctx),
        args_(args),
        tokens_(args.x.sizes[0]),
        hidden_(args.x.sizes[1]),
        vocab_(args.weight.sizes[0]),
        chunk_(std::max<int64_t>(1, args.chunk.tokens)),
        panel_(args.chunk.lean ? lean_panel() : vocab_),
        factors_(ctx.scratch("loss_factors", static_cast<int64_t>(sizeof(LossFactors)))),
        stats_(ctx.scratch("loss_rows", tokens_ * static_cast<int64_t>(sizeof(RowStats)))),
        sums_(ctx.scratch("loss_sums", loss_sums_bytes(args.options.reduction, tokens_))),
        loss_rows_(ctx.scratch("loss_row_tokens", tokens_ * static_cast<int64_t>(sizeof(LossRow)))),
        logits_(ctx, "flce_logits", args.x.dtype, {chunk_, logits_stride()}, MemoryClass::workspace),
        rows_(ctx, "flce_rows", args.x.dtype, {chunk_, hidden_stride()}, MemoryClass::workspace),
        weight_(ctx, "flce_weight", args.weight.dtype,
                {pads_weight() ? (args.panels ? panel_ : vocab_) : 0, hidden_stride()}, MemoryClass::workspace),
        dx_sums_(ctx, "flce_dx", DType::f32, {args.chunk.lean && args.dx ? chunk_ : 0, hidden_stride()},
                 MemoryClass::workspace),
        dweight_sums_(ctx, "flce_dweight", DType::f32, {sums_dweight_apart() ? vocab_ : 0, hidden_stride()},
                      MemoryClass::workspace),
        exponents_(ctx.scratch("flce_exponents", keeps_fine_sums() ? vocab_ * divide_up(hidden_, kSumColumns) : 0)),
        dbias_sums_(ctx, "flce_dbias", DType::f32, {args.dbias ? vocab_ : 0}, MemoryClass::workspace),
        gemm_workspace_(ctx.scratch("gemm_workspace", kGemmWorkspace)),
        batch_(loss_batch(args, tokens_, vocab_)) {
    batch_.factors = factors_.as<LossFactors>();
    batch_.stats = stats_.as<RowStats>();
    batch_.rows = loss_rows_.as<LossRow>();
    batch_.wants_best = args.out.predicted || args.out.accuracy;
    if (args.dloss) {
      batch_.dloss = args.dloss.as<float>();
      batch_.dloss_by_token = args.dloss.sizes[0] != 1;
    }
  }

  void run() {
    if (args_.panels != nullptr) return run_from_panels();
    const DeviceGuard guard(ctx_);
    const Parts chunks(tokens_, chunk_);
    const Buffer scratch = ctx_.scratch("flce_chunk", scratch_of(chunks));
    if (ctx_.measuring()) return;
    loss_count(ctx_, batch_);
    clear_uncounted_dx();
    clear_padding();
    if (pads_weight()) copy_rows(ctx_, args_.weight, weight_);
    // Recorded chunks run when their scratch was given back: it comes out of one block, which stays.
    StackArena arena(scratch.data(), scratch.bytes());
    const auto run_chunk = [&](Context ctx, int64_t c) {
      ctx.memory = &arena;
      chunk(ctx, chunks, c);
    };
    std::vector<Part> rest;
    for (int64_t c = 1; c < chunks.count; ++c) {
      rest.push_back({.begin = chunks.begin(c), .run = [=](const Context& ctx) { run_chunk(ctx, c); }});
    }
    if (chunks.count > 0) run_chunk(ctx_, 0);
    if (gemm_tunes() && !is_capturing(stream_of(ctx_))) {  // recorded products are not tuned
      for (const Part& part : rest) part.run(ctx_);
    } else {
      run_needed(ctx_, &batch_.factors->counted, rest, key(scratch));
    }
    finish_parameters(chunks.count);
    loss_finish(ctx_, batch_, args_.out, args_.options.reduction, sums_, false);
  }

 private:
  // All tokens are one chunk, which is never skipped: its panels are asked for even where no token counts.
  void run_from_panels() {
    const DeviceGuard guard(ctx_);
    if (!ctx_.measuring()) {
      loss_count(ctx_, batch_);
      clear_uncounted_dx();
      clear_padding();
    }
    chunk(ctx_, Parts(tokens_, chunk_), 0);
    if (ctx_.measuring()) return;
    finish_parameters(1);
    loss_finish(ctx_, batch_, args_.out, args_.options.reduction, sums_, false);
  }

  // What the chunks' kernels and products are given.
  WorkKey key(const Buffer& scratch) const {
    WorkKey key;
    for (const Tensor& t : {args_.x, args_.weight, args_.bias, args_.target, args_.class_weight, args_.token_scale,
                            args_.dloss, args_.dx, args_.dweight, args_.dbias, logits_.view, rows_.view, weight_.view,
                            dx_sums_.view, dweight_sums_.view, dbias_sums_.view}) {
      key.add(t);
    }
    for (const Buffer* b : {&factors_, &stats_, &loss_rows_, &exponents_, &gemm_workspace_, &scratch})
      key.add(b->data());
    const ops::CrossEntropyOptions& o = args_.options;
    key.add(o.ignore_index).add(o.label_smoothing).add(o.z_loss).add(o.softcap).add(o.reduction);
    return key.add(args_.chunk.lean).add(panel_).add(args_.accumulate_dweight).add(batch_.wants_best);
  }

  bool gradients() const { return args_.dx || args_.dweight || args_.dbias; }
  bool keeps_fine_sums() const {
    return args_.dweight && !args_.panels && divide_up(tokens_, chunk_) > 1 && dweight_sums_fit(ctx_, args_.dweight);
  }
  // Without finer sums a few chunks may round a 16-bit dweight one after the other; beyond, it is added up in f32. In
  // bf16 these roundings are most of its error; in f16 that of dlogits is, whose small ones lose bits. Where memory
  // comes first, so do a few roundings more.
  bool sums_dweight_apart() const {
    const int64_t few = args_.dweight.dtype == DType::f16 || args_.chunk.lean ? 8 : 2;
    return args_.dweight && !args_.panels && args_.dweight.dtype != DType::f32 && !keeps_fine_sums() &&
           divide_up(tokens_, chunk_) > few;
  }
  // What the budget has room for, evened out over the vocabulary, in whole tiles.
  int64_t lean_panel() const {
    constexpr int64_t kTile = 128;
    const int64_t all = std::max<int64_t>(1, vocab_);
    const int64_t most = std::max<int64_t>(1, args_.chunk.budget_bytes / size_of(args_.x.dtype) / chunk_);
    const int64_t even = divide_up(all, divide_up(all, most < kTile ? most : most / kTile * kTile));
    return most < kTile ? even : std::min(all, round_up(even, kTile));
  }
  // Rows of our own are at multiples of 16 bytes, as the products want them.
  int64_t padded(int64_t columns) const { return round_up(columns, 16 / size_of(args_.x.dtype)); }
  int64_t logits_stride() const { return padded(panel_); }
  int64_t hidden_stride() const { return padded(hidden_); }
  // A weight of odd rows is copied once for the products of all chunks.
  bool pads_weight() const { return size_of(args_.weight.dtype) == 2 && hidden_ != hidden_stride(); }

  Tensor logits(int64_t rows, int64_t columns) const {
    Tensor t = logits_.view.slice(0, 0, rows);
    t.sizes[1] = columns;
    return t;
  }
  Tensor rows(int64_t count) const { return without_padding(rows_).slice(0, 0, count); }
  Tensor weight(int64_t first, int64_t end) const {
    return (pads_weight() ? without_padding(weight_) : args_.weight).slice(0, first, end);
  }
  // Rows `now` of it, wherever they come from.
  Tensor weight(const Context& ctx, ops::Classes now, ops::Classes next) const {
    if (args_.panels == nullptr) return weight(now.begin, now.end);
    const Tensor panel = args_.panels->weight(ctx, now, next);
    if (!pads_weight()) return panel;
    const Tensor padded = weight_.view.slice(0, 0, now.end - now.begin);
    if (!ctx.measuring()) copy_rows(ctx, panel, padded);
    return without_padding(padded);
  }
  Tensor without_padding(const Tensor& t) const { return t.slice(1, 0, hidden_); }

  // What the ops inside a chunk take for themselves. All chunks have as many rows, but the last.
  int64_t scratch_of(const Parts& chunks) const {
    StackArena arena = StackArena::measuring_arena();
    Context ctx = ctx_;
    ctx.memory = &arena;
    if (chunks.count > 0) chunk(ctx, chunks, 0);
    if (chunks.count > 1) chunk(ctx, chunks, chunks.count - 1);
    return arena.bytes_needed();
  }

  void chunk(const Context& ctx, const Parts& chunks, int64_t c) const {
    const Tokens of{.begin = chunks.begin(c), .end = chunks.end(c), .first = c == 0, .last = c == chunks.count - 1};
    gather(ctx, of.begin, of.count());
    if (args_.chunk.lean) {
      panels(ctx, of);
    } else {
      whole_rows(ctx, of);
    }
  }

  // Operands of our own are padded, and so is the weight where it needs to be.
  void product(const Context& ctx, Gemm args) const {
    args.a_padded = args.b_padded = true;
    args.workspace = gemm_workspace_.data();
    args.workspace_bytes = kGemmWorkspace;
    gemm(ctx, args);
  }

  void clear_uncounted_dx() const {
    if (!args_.dx || args_.dx.elements() == 0) return;
    const RowMove move = row_move(args_.dx, args_.dx);
    with_unit(move, [&](auto* unit) {
      clear_kernel<std::remove_pointer_t<decltype(unit)>>
          <<<static_cast<unsigned>(tokens_), 256, 0, stream_of(ctx_)>>>(batch_, move);
    });
    check_launch("fused_linear_cross_entropy");
  }

  // What lies between rows of logits is read with them. Nothing comes of it, but a sanitizer cannot know that.
  void clear_padding() const {
    const int64_t unit = size_of(args_.x.dtype), pitch = logits_stride() * unit;
    if (logits_stride() == panel_ || chunk_ == 0) return;
    check(cudaMemset2DAsync(logits_.view.as<std::byte>() + panel_ * unit, static_cast<size_t>(pitch), 0,
                            static_cast<size_t>(pitch - panel_ * unit), static_cast<size_t>(chunk_), stream_of(ctx_)),
          "fused_linear_cross_entropy");
  }

  void gather(const Context& ctx, int64_t begin, int64_t count) const {
    if (ctx.measuring() || count * hidden_ == 0) return;
    if (hidden_ != hidden_stride()) {  // where dx of the last chunk stood
      const Tensor padding = rows_.view.slice(1, hidden_, hidden_stride());
      copy_rows(ctx, padding.slice(1, 0, 0), padding);
    }
    const RowMove move = row_move(args_.x, rows(count));
    with_unit(move, [&](auto* unit) {
      gather_kernel<std::remove_pointer_t<decltype(unit)>>
          <<<static_cast<unsigned>(count), 256, 0, stream_of(ctx)>>>(batch_, begin, move);
    });
    check_launch("fused_linear_cross_entropy");
  }

  void scatter_dx(const Context& ctx, int64_t begin, int64_t count) const {
    if (ctx.measuring() || count * hidden_ == 0) return;
    const RowMove move = row_move(rows(count), args_.dx);
    with_unit(move, [&](auto* unit) {
      scatter_kernel<std::remove_pointer_t<decltype(unit)>>
          <<<static_cast<unsigned>(count), 256, 0, stream_of(ctx)>>>(batch_, begin, move);
    });
    check_launch("fused_linear_cross_entropy");
  }

  void scatter_dx_sums(const Context& ctx, int64_t begin, int64_t count) const {
    if (ctx.measuring() || count * hidden_ == 0) return;
    dispatch("fused_linear_cross_entropy", args_.dx.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      scatter_narrow_kernel<T><<<static_cast<unsigned>(count), 256, 0, stream_of(ctx)>>>(
          batch_, begin, rows_of<const float>(dx_sums_.view), rows_of<T>(args_.dx), hidden_);
    });
    check_launch("fused_linear_cross_entropy");
  }

  // dW of some classes, and db.
  void parameters(const Context& ctx, const Tensor& dlogits, ops::Classes now, ops::Classes next,
                  const Tokens& of) const {
    if (args_.dweight && args_.panels != nullptr) {
      const Tensor part = args_.panels->dweight(ctx, now, next);
      product(ctx, {.a = dlogits,
                    .b = rows(dlogits.sizes[0]),
                    .c = part,
                    .a_transposed = true,
                    .accumulate = args_.accumulate_dweight});
      args_.panels->written(ctx, now);
    } else if (args_.dweight) {
      add_dweight(ctx, dlogits, now.begin, of);
    }
    if (args_.dbias) column_sums(ctx, dlogits, dbias_sums_.view.slice(0, now.begin, now.end), !of.first);
  }

  void add_dweight(const Context& ctx, const Tensor& dlogits, int64_t first_class, const Tokens& of) const {
    const bool apart = sums_dweight_apart();
    const Tensor whole = apart ? without_padding(dweight_sums_) : args_.dweight;
    const Tensor part = whole.slice(0, first_class, first_class + dlogits.sizes[1]);
    const Tensor x = rows(dlogits.sizes[0]);
    if (!keeps_fine_sums()) {
      product(ctx, {.a = dlogits,
                    .b = x,
                    .c = part,
                    .a_transposed = true,
                    .accumulate = !of.first || (args_.accumulate_dweight && !apart),
                    .c_padded = apart});
    } else if (!ctx.measuring()) {
      add_to_dweight(ctx, {.dlogits = dlogits,
                           .x = x,
                           .dweight = part,
                           .exponents = exponents_.as<uint8_t>() + first_class * divide_up(hidden_, kSumColumns),
                           .accumulate = args_.accumulate_dweight,
                           .first = of.first,
                           .last = of.last,
                           .counted = &batch_.factors->counted,
                           .begin = of.begin,
                           .end = of.end});
    }
  }

  void whole_rows(const Context& ctx, const Tokens& of) const {
    const Tensor block = logits(of.count(), vocab_);
    product(ctx, {.a = rows(of.count()),
                  .b = weight(0, vocab_),
                  .c = block,
                  .bias = args_.bias,
                  .b_transposed = true,
                  .c_padded = true});
    if (!ctx.measuring()) loss_rows(ctx, batch_, of.begin, block, gradients() ? block : Tensor{}, true, false);
    parameters(ctx, block, {0, vocab_}, {}, of);
    if (!args_.dx) return;
    // The copy of x is no longer needed.
    product(ctx, {.a = block, .b = weight(0, vocab_), .c = rows(of.count()), .c_padded = true});
    scatter_dx(ctx, of.begin, of.count());
  }

  void panels(const Context& ctx, const Tokens& of) const {
    const Parts panels(vocab_, panel_);
    const auto classes = [&](int64_t p) {
      return p < 0 || p >= panels.count ? ops::Classes{} : ops::Classes{panels.begin(p), panels.end(p)};
    };
    const auto panel_logits = [&](const Tensor& panel, ops::Classes now) {
      const Tensor block = logits(of.count(), now.end - now.begin);
      product(ctx, {.a = rows(of.count()),
                    .b = panel,
                    .c = block,
                    .bias = args_.bias ? args_.bias.slice(0, now.begin, now.end) : Tensor{},
                    .b_transposed = true,
                    .c_padded = true});
      return block;
    };
    for (int64_t p = 0; p < panels.count; ++p) {
      // The last panel is the first of the way back.
      const ops::Classes now = classes(p), next = p + 1 < panels.count ? classes(p + 1) : classes(gradients() ? p : -1);
      const Tensor block = panel_logits(weight(ctx, now, next), now);
      if (!ctx.measuring()) loss_panel_stats(ctx, batch_, of.begin, block, now.begin, true);
    }
    if (!gradients()) return;
    for (int64_t p = panels.count; p-- > 0;) {
      const ops::Classes now = classes(p), next = classes(p - 1);
      const Tensor panel = weight(ctx, now, next), block = panel_logits(panel, now);
      if (!ctx.measuring()) loss_panel_gradient(ctx, batch_, of.begin, block, now.begin, nullptr, block, true);
      parameters(ctx, block, now, next, of);
      if (args_.dx) {
        product(ctx, {.a = block,
                      .b = panel,
                      .c = without_padding(dx_sums_).slice(0, 0, of.count()),
                      .accumulate = p + 1 < panels.count,
                      .c_padded = true});
      }
    }
    if (args_.dx) scatter_dx_sums(ctx, of.begin, of.count());
  }

  // Sums that were kept in f32 reach their tensors; without any token the gradient is 0.
  void finish_parameters(int64_t chunks) const {
    const auto write = [&](const Tensor& sums, const Tensor& out) {
      if (out.elements() == 0) return;
      if (chunks == 0 && args_.accumulate_dweight) return;
      if (chunks == 0) {
        unary(ctx_, {.x = out, .y = out, .alpha = 0.0});
      } else if (args_.accumulate_dweight) {
        binary(ctx_, {.op = ops::BinaryOp::add, .a = out, .b = sums, .y = out});
      } else {
        unary(ctx_, {.x = sums, .y = out});
      }
    };
    if (args_.dweight && !args_.panels && (sums_dweight_apart() || chunks == 0))
      write(without_padding(dweight_sums_), args_.dweight);
    if (args_.dbias) write(dbias_sums_, args_.dbias);
  }

  const Context& ctx_;
  const FusedLinearCrossEntropyForward& args_;
  int64_t tokens_, hidden_, vocab_, chunk_;
  int64_t panel_;  // classes at a time
  Buffer factors_, stats_, sums_, loss_rows_;
  OwnedTensor logits_;
  OwnedTensor rows_;    // the chunk's x, later its dx
  OwnedTensor weight_;  // where the products want one with padded rows
  OwnedTensor dx_sums_, dweight_sums_;
  Buffer exponents_;  // of dweight's sums
  OwnedTensor dbias_sums_;
  Buffer gemm_workspace_;
  LossBatch batch_;
};

}  // namespace

void fused_linear_cross_entropy_forward(const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  Walk(ctx, args).run();
}

void fused_linear_cross_entropy_backward(const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  Walk(ctx, args).run();
}

}  // namespace tigon::cuda
