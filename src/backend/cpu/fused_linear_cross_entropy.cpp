// fused_linear_cross_entropy. Tokens that count are taken in chunks; a chunk's f32 logits are one buffer that the
// gradient then overwrites, and from it come dx and dweight:
//
//   logits = x·Wᵀ + b      loss and dlogits, row by row      dW += dlogitsᵀ·x      dx = dlogits·W
//
// Where the CPU multiplies x's type as it is, dlogits is rounded to that type, as on a GPU and in an unfused chain, and
// lies in the first half of each row of the f32 logits. An f32 dweight is asked for to lose nothing, so it is formed
// before that.
//
// dweight in f32 is added up in place. A 16-bit dweight that several chunks would add to must not be rounded after each
// of them, and an f32 copy of it would cost more than everything else here; so then, and in the lean walk, the
// vocabulary is cut instead of the tokens: a first walk over panels of W finds each row's softmax, a second one, back
// from the last panel to the first, forms the gradient of all tokens for one panel at a time, and each row of dweight
// is complete, and rounded, once. That is a fourth product for no memory at all, and W itself may come in panels.
#include <cstring>

#include "backend/cpu/column_sums.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/loss_rows.hpp"
#include "backend/cpu/rows.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::cpu {

namespace {

using ops::FusedLinearCrossEntropyForward;

// Equal parts of [0, total), each at most `size`.
struct Parts {
  int64_t total, count;
  Parts(int64_t elements, int64_t size) : total(elements), count((elements + size - 1) / size) {}
  int64_t begin(int64_t part) const { return total / count * part + std::min(part, total % count); }
  int64_t end(int64_t part) const { return begin(part + 1); }
};

std::byte* row_bytes(const Tensor& t, int64_t i) {
  return static_cast<std::byte*>(t.data) + i * t.strides[0] * size_of(t.dtype);
}

Tensor top_rows(const Tensor& t, int64_t rows) { return t.slice(0, 0, rows); }

class Walk {
 public:
  Walk(const Context& ctx, const FusedLinearCrossEntropyForward& args)
      : outer_(ctx),
        args_(args),
        tokens_(args.x.sizes[0]),
        hidden_(args.x.sizes[1]),
        vocab_(args.weight.sizes[0]),
        chunk_(args.chunk.tokens),
        by_panels_(args.chunk.lean || (args.dweight && args.dweight.dtype != DType::f32 && tokens_ > chunk_)),
        narrows_(multiplies_natively(args.x.dtype) && args.weight.dtype == args.x.dtype),
        panel_(panel_classes()),
        batch_(ctx, {.target = args.target,
                     .class_weight = args.class_weight,
                     .token_scale = args.token_scale,
                     .dloss = args.dloss,
                     .options = args.options,
                     .out = args.out,
                     .vocab = vocab_}),
        kept_(ctx.scratch("flce_kept_tokens", tokens_ * 8)),
        logits_(ctx, "flce_logits", DType::f32, {by_panels_ ? tokens_ * panel_ : chunk_ * vocab_},
                MemoryClass::workspace),
        rows_(ctx, "flce_rows", args.x.dtype, {by_panels_ ? tokens_ : chunk_, hidden_}, MemoryClass::workspace),
        dx_rows_(by_panels_ && args.dx
                     ? OwnedTensor(ctx, "flce_dx", DType::f32, {tokens_, hidden_}, MemoryClass::workspace)
                     : OwnedTensor()),
        sums_(ctx.scratch("flce_row_sums", by_panels_ ? tokens_ * static_cast<int64_t>(sizeof(RowSums)) : 0)),
        bias_sums_(ctx, "flce_dbias", DType::f32, {sums_bias_apart() ? vocab_ : 0}, MemoryClass::workspace),
        workspace_(ctx.scratch("flce_products", product_scratch())),
        stack_(workspace_.data(), workspace_.bytes()),
        ctx_(ctx) {
    // Products are sized by the tokens that count, which a plan cannot know; they share one block that fits them all.
    if (!ctx.measuring()) ctx_.memory = &stack_;
  }

  void run() {
    if (outer_.measuring()) return ask_for_panels();
    for (int64_t i = 0; i < tokens_; ++i) {
      if (batch_.counted(i)) {
        kept_.as<int64_t>()[kept_count_++] = i;
      } else {
        batch_.ignore_row(i);
        if (args_.dx) clear_row(args_.dx, i);
      }
    }
    if (by_panels_) {
      run_panels();
    } else {
      run_chunks();
    }
    batch_.finish();
  }

 private:
  // Classes at a time: in the lean walk what the budget has room for, else so many that all tokens' logits of them fit
  // a chunk's buffer; evened out over the vocabulary.
  int64_t panel_classes() const {
    const int64_t tokens = std::max<int64_t>(1, tokens_),
                  most = args_.chunk.lean ? std::min(vocab_, args_.chunk.budget_bytes / 4 / tokens)
                                          : chunk_ * vocab_ / tokens;
    return std::max<int64_t>(1, most);
  }
  bool gradients() const { return args_.dx || args_.dweight || args_.dbias; }
  // Whether the bias gradient of several chunks is added up beside a 16-bit dbias.
  bool sums_bias_apart() const { return args_.dbias && args_.dbias.dtype != DType::f32 && !by_panels_; }
  int64_t token(int64_t kept) const { return kept_.as<int64_t>()[kept]; }
  bool all_kept() const { return kept_count_ == tokens_; }

  Tensor logits(int64_t rows, int64_t columns) const {
    return Tensor::contiguous(logits_.view.data, DType::f32, {rows, columns});
  }
  // The gradients that took the place of these logits, as the product with x reads them and as that with weight does.
  Tensor for_dweight(const Tensor& block) const {
    return args_.dweight && args_.dweight.dtype == DType::f32 ? block : for_dx(block);
  }
  Tensor for_dx(const Tensor& block) const {
    if (!narrows_) return block;
    Tensor narrow = block;
    narrow.dtype = args_.x.dtype;
    narrow.strides[0] *= size_of(block.dtype) / size_of(narrow.dtype);
    return narrow;
  }
  static void clear_row(const Tensor& t, int64_t i) {
    std::memset(row_bytes(t, i), 0, static_cast<size_t>(t.sizes[1] * size_of(t.dtype)));
  }

  int64_t product_scratch() const {
    if (tokens_ == 0) return 0;
    const int64_t rows = by_panels_ ? tokens_ : chunk_, columns = by_panels_ ? panel_ : vocab_;
    const Tensor x = top_rows(args_.x, rows), block = logits(rows, columns);
    const Tensor weight = top_rows(args_.weight, columns);
    int64_t bytes = gemm_scratch_limit(outer_, {.a = x, .b = weight, .c = block, .b_transposed = true});
    if (args_.dweight) {
      const Tensor dweight = args_.dweight.slice(0, 0, columns);
      bytes = std::max(
          bytes, gemm_scratch_limit(outer_, {.a = for_dweight(block), .b = x, .c = dweight, .a_transposed = true}));
    }
    if (args_.dx) {
      const Tensor dx = by_panels_ ? dx_rows_.view : args_.dx;
      bytes = std::max(bytes, gemm_scratch_limit(outer_, {.a = for_dx(block), .b = weight, .c = dx}));
    }
    if (args_.dbias) bytes = std::max(bytes, columns * 4 + kMemoryAlignment);
    return bytes;
  }

  // Rows of x that belong to kept tokens [begin, end): x itself where nothing is left out between them, else a copy.
  Tensor gather(int64_t begin, int64_t end) const {
    if (hidden_ == 0) return top_rows(args_.x, end - begin);  // nothing is read, and x may be null
    if (token(end - 1) - token(begin) == end - 1 - begin) return args_.x.slice(0, token(begin), token(end - 1) + 1);
    const Tensor rows = top_rows(rows_, end - begin);
    parallel_tasks(ctx_, end - begin, [&](int64_t i) {
      std::memcpy(row_bytes(rows, i), row_bytes(args_.x, token(begin + i)),
                  static_cast<size_t>(hidden_ * size_of(rows.dtype)));
    });
    return rows;
  }

  // body(token, row of `block`) for kept tokens from `begin` on, in parallel.
  template <class Body>
  void for_rows(const Tensor& block, int64_t begin, int64_t first_class, const Body& body) const {
    const Blocks blocks = row_blocks(block.sizes[0], block.sizes[1] * 4);
    parallel_tasks(ctx_, blocks.count, [&](int64_t task) {
      for (int64_t i = blocks.begin(task); i < blocks.end(task); ++i) {
        body(begin + i, LogitRow{.logits = row<float>(block, i), .count = block.sizes[1], .first = first_class});
      }
    });
  }

  void run_chunks() {
    const Parts chunks(kept_count_, chunk_);
    bool add = args_.accumulate_dweight;
    bool add_bias = sums_bias_apart() ? false : add;
    const Tensor bias_sums = sums_bias_apart() ? bias_sums_.view : args_.dbias;
    for (int64_t c = 0; c < chunks.count; ++c) {
      const int64_t begin = chunks.begin(c), end = chunks.end(c);
      const Tensor x = gather(begin, end), block = logits(end - begin, vocab_);
      gemm(ctx_, {.a = x, .b = args_.weight, .c = block, .bias = args_.bias, .b_transposed = true});
      for_rows(block, begin, 0, [&](int64_t kept, const LogitRow& row) {
        const RowScale scale = batch_.add_row(token(kept), row);
        if (gradients()) batch_.gradient_in_place(token(kept), row, scale, for_dweight(block).dtype);
      });
      const Tensor gradient = for_dweight(block);
      if (args_.dweight) {
        gemm(ctx_, {.a = gradient, .b = x, .c = args_.dweight, .a_transposed = true, .accumulate = add});
      }
      if (args_.dbias) column_sums(ctx_, gradient, bias_sums, add_bias);
      add = add_bias = true;
      if (args_.dx) {
        if (gradient.dtype != for_dx(block).dtype) narrow(block);
        chunk_dx(begin, end, x, for_dx(block));
      }
    }
    if (sums_bias_apart() && chunks.count > 0) narrow_bias();
    if (chunks.count == 0) nothing_counts();
  }

  void narrow(const Tensor& block) const {
    for_rows(block, 0, 0,
             [](int64_t, const LogitRow& row) { narrow_in_place(const_cast<void*>(row.logits), row.count); });
  }

  void chunk_dx(int64_t begin, int64_t end, const Tensor& x, const Tensor& gradient) {
    if (x.data != rows_.view.data) {  // neighbouring tokens: straight into place
      return gemm(ctx_, {.a = gradient, .b = args_.weight, .c = args_.dx.slice(0, token(begin), token(end - 1) + 1)});
    }
    gemm(ctx_, {.a = gradient, .b = args_.weight, .c = x});  // the copy of x is no longer needed
    parallel_tasks(ctx_, end - begin, [&](int64_t i) {
      std::memcpy(row_bytes(args_.dx, token(begin + i)), row_bytes(x, i),
                  static_cast<size_t>(hidden_ * size_of(x.dtype)));
    });
  }

  void narrow_bias() {
    if (args_.accumulate_dweight) {
      binary(ctx_, {.op = ops::BinaryOp::add, .a = args_.dbias, .b = bias_sums_, .y = args_.dbias});
    } else {
      unary(ctx_, {.x = bias_sums_, .y = args_.dbias});
    }
  }

  // Then dweight and dbias are 0, or what they were.
  void nothing_counts() const {
    if (args_.dbias && !args_.accumulate_dweight)
      std::memset(args_.dbias.data, 0, static_cast<size_t>(args_.dbias.bytes()));
    ask_for_panels();
    for (int64_t j = 0; args_.dweight && !args_.panels && !args_.accumulate_dweight && j < vocab_; ++j) {
      clear_row(args_.dweight, j);
    }
  }

  void run_panels() {
    if (kept_count_ == 0) return nothing_counts();
    const Tensor x = gather(0, kept_count_);
    const auto panel_logits = [&](const Tensor& weight, ops::Classes now) {
      const Tensor block = logits(kept_count_, now.end - now.begin);
      const Tensor bias = args_.bias ? args_.bias.slice(0, now.begin, now.end) : Tensor{};
      gemm(ctx_, {.a = x, .b = weight, .c = block, .bias = bias, .b_transposed = true});
      return block;
    };
    // Each row's softmax; the loss comes with it.
    auto* sums = sums_.as<RowSums>();
    std::fill_n(sums, kept_count_, RowSums{});
    for_panels(true, [&](ops::Classes now, ops::Classes next) {
      for_rows(panel_logits(weight(now, next), now), 0, now.begin, [&](int64_t kept, const LogitRow& row) {
        batch_.add_columns(token(kept), row, sums[kept]);
        if (now.end == vocab_) batch_.finish_row(token(kept), sums[kept]);
      });
    });
    if (!gradients()) return;
    const Tensor dx = args_.dx ? top_rows(dx_rows_, kept_count_) : Tensor{};
    for_panels(false, [&](ops::Classes now, ops::Classes next) {
      const Tensor panel = weight(now, next), block = panel_logits(panel, now);
      for_rows(block, 0, now.begin, [&](int64_t kept, const LogitRow& row) {
        batch_.gradient_in_place(token(kept), row, sums[kept].scale(), for_dweight(block).dtype);
      });
      const Tensor gradient = for_dweight(block);
      if (args_.dweight) {
        gemm(ctx_, {.a = gradient,
                    .b = x,
                    .c = dweight(now, next),
                    .a_transposed = true,
                    .accumulate = args_.accumulate_dweight});
        written(now);
      }
      if (args_.dbias) column_sums(ctx_, gradient, args_.dbias.slice(0, now.begin, now.end), args_.accumulate_dweight);
      if (!args_.dx) return;
      if (gradient.dtype != for_dx(block).dtype) narrow(block);
      gemm(ctx_, {.a = for_dx(block), .b = panel, .c = dx, .accumulate = now.end < vocab_});
    });
    for (int64_t i = 0; args_.dx && i < kept_count_; ++i) {
      unary(ctx_, {.x = dx.slice(0, i, i + 1), .y = args_.dx.slice(0, token(i), token(i) + 1)});
    }
  }

  // body(a panel, the one after it), upwards or back; after the way up come the panels of the way back.
  template <class Body>
  void for_panels(bool upwards, const Body& body) const {
    const Parts panels(vocab_, panel_);
    const auto classes = [&](int64_t p) {
      return p < 0 || p >= panels.count ? ops::Classes{} : ops::Classes{panels.begin(p), panels.end(p)};
    };
    for (int64_t i = 0; i < panels.count; ++i) {
      const bool last = i + 1 == panels.count;
      const int64_t p = upwards ? i : panels.count - 1 - i;
      body(classes(p), upwards ? classes(!last ? p + 1 : gradients() ? p : -1) : classes(p - 1));
    }
  }
  Tensor weight(ops::Classes now, ops::Classes next) const {
    return args_.panels ? args_.panels->weight(outer_, now, next) : args_.weight.slice(0, now.begin, now.end);
  }
  Tensor dweight(ops::Classes now, ops::Classes next) const {
    return args_.panels ? args_.panels->dweight(outer_, now, next) : args_.dweight.slice(0, now.begin, now.end);
  }
  void written(ops::Classes now) const {
    if (args_.panels) args_.panels->written(outer_, now);
  }
  // All that a walk asks for, where there is nothing to compute.
  void ask_for_panels() const {
    if (!args_.panels) return;
    for_panels(true, [&](ops::Classes now, ops::Classes next) { (void)weight(now, next); });
    if (!gradients()) return;
    for_panels(false, [&](ops::Classes now, ops::Classes next) {
      (void)weight(now, next);
      if (!args_.dweight) return;
      const Tensor part = dweight(now, next);
      for (int64_t j = 0; j < part.sizes[0] && !outer_.measuring() && !args_.accumulate_dweight; ++j)
        clear_row(part, j);
      written(now);
    });
  }

  const Context& outer_;
  const FusedLinearCrossEntropyForward& args_;
  int64_t tokens_, hidden_, vocab_, chunk_;
  bool by_panels_;
  bool narrows_;   // dlogits to x's type
  int64_t panel_;  // classes at a time, so that all tokens' logits of them fit the chunk's buffer
  LossBatch batch_;
  Buffer kept_;  // the tokens that count, in order
  OwnedTensor logits_, rows_, dx_rows_;
  Buffer sums_;  // of kept tokens' rows
  OwnedTensor bias_sums_;
  Buffer workspace_;
  StackArena stack_;
  Context ctx_;
  int64_t kept_count_ = 0;
};

}  // namespace

void fused_linear_cross_entropy_forward(const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  Walk(ctx, args).run();
}

void fused_linear_cross_entropy_backward(const Context& ctx, const FusedLinearCrossEntropyForward& args) {
  Walk(ctx, args).run();
}

}  // namespace tigon::cpu
