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
// of them, and an f32 copy of it would cost more than everything else here; so then the vocabulary is cut instead:
// a first walk over the tokens finds each row's softmax, a second one over panels of W forms the gradient of all tokens
// for one panel at a time, and each row of dweight is complete, and rounded, once. That is a fourth product for
// no memory at all.
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
        by_panels_(args.dweight && args.dweight.dtype != DType::f32 && tokens_ > chunk_),
        narrows_(multiplies_natively(args.x.dtype) && args.weight.dtype == args.x.dtype),
        panel_(std::max<int64_t>(1, chunk_ * vocab_ / std::max<int64_t>(1, tokens_))),
        batch_(ctx, {.target = args.target,
                     .class_weight = args.class_weight,
                     .token_scale = args.token_scale,
                     .dloss = args.dloss,
                     .options = args.options,
                     .out = args.out,
                     .vocab = vocab_}),
        kept_(ctx.scratch("flce_kept_tokens", tokens_ * 8)),
        logits_(ctx, "flce_logits", DType::f32, {std::max(chunk_ * vocab_, by_panels_ ? tokens_ * panel_ : 0)},
                MemoryClass::workspace),
        rows_(ctx, "flce_rows", args.x.dtype, {by_panels_ ? tokens_ : chunk_, hidden_}, MemoryClass::workspace),
        dx_rows_(by_panels_ && args.dx
                     ? OwnedTensor(ctx, "flce_dx", DType::f32, {tokens_, hidden_}, MemoryClass::workspace)
                     : OwnedTensor()),
        scales_(ctx.scratch("flce_row_scales", by_panels_ ? tokens_ * static_cast<int64_t>(sizeof(RowScale)) : 0)),
        bias_sums_(ctx, "flce_dbias", DType::f32, {sums_bias_apart() ? vocab_ : 0}, MemoryClass::workspace),
        workspace_(ctx.scratch("flce_products", product_scratch())),
        stack_(workspace_.data(), workspace_.bytes()),
        ctx_(ctx) {
    // Products are sized by the tokens that count, which a plan cannot know; they share one block that fits them all.
    if (!ctx.measuring()) ctx_.memory = &stack_;
  }

  void run() {
    if (outer_.measuring()) return;
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
    if (by_panels_) {
      bytes = std::max(bytes, gemm_scratch_limit(outer_, {.a = top_rows(args_.x, chunk_),
                                                          .b = args_.weight,
                                                          .c = logits(chunk_, vocab_),
                                                          .b_transposed = true}));
    }
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
    if (chunks.count == 0 && !args_.accumulate_dweight) clear_parameters();
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

  void clear_parameters() {
    if (args_.dweight) {
      for (int64_t j = 0; j < vocab_; ++j) clear_row(args_.dweight, j);
    }
    if (args_.dbias) std::memset(args_.dbias.data, 0, static_cast<size_t>(args_.dbias.bytes()));
  }

  void run_panels() {
    if (kept_count_ == 0) {
      if (!args_.accumulate_dweight) clear_parameters();
      return;
    }
    // Each row's softmax; the loss comes with it.
    const Parts chunks(kept_count_, chunk_);
    for (int64_t c = 0; c < chunks.count; ++c) {
      const int64_t begin = chunks.begin(c), end = chunks.end(c);
      const Tensor block = logits(end - begin, vocab_);
      gemm(ctx_, {.a = gather(begin, end), .b = args_.weight, .c = block, .bias = args_.bias, .b_transposed = true});
      for_rows(block, begin, 0, [&](int64_t kept, const LogitRow& row) {
        scales_.as<RowScale>()[kept] = batch_.add_row(token(kept), row);
      });
    }
    const Tensor x = gather(0, kept_count_);
    const Tensor dx = args_.dx ? top_rows(dx_rows_, kept_count_) : Tensor{};
    const Parts panels(vocab_, panel_);
    for (int64_t p = 0; p < panels.count; ++p) {
      const int64_t first = panels.begin(p), last = panels.end(p);
      const Tensor weight = args_.weight.slice(0, first, last), block = logits(kept_count_, last - first);
      const Tensor bias = args_.bias ? args_.bias.slice(0, first, last) : Tensor{};
      gemm(ctx_, {.a = x, .b = weight, .c = block, .bias = bias, .b_transposed = true});
      for_rows(block, 0, first, [&](int64_t kept, const LogitRow& row) {
        batch_.gradient_in_place(token(kept), row, scales_.as<RowScale>()[kept], for_dweight(block).dtype);
      });
      const Tensor gradient = for_dweight(block);  // of 16 bits, as dweight is, so dx's as well
      gemm(ctx_, {.a = gradient,
                  .b = x,
                  .c = args_.dweight.slice(0, first, last),
                  .a_transposed = true,
                  .accumulate = args_.accumulate_dweight});
      if (args_.dbias) column_sums(ctx_, gradient, args_.dbias.slice(0, first, last), args_.accumulate_dweight);
      if (args_.dx) gemm(ctx_, {.a = gradient, .b = weight, .c = dx, .accumulate = p > 0});
    }
    for (int64_t i = 0; args_.dx && i < kept_count_; ++i) {
      unary(ctx_, {.x = dx.slice(0, i, i + 1), .y = args_.dx.slice(0, token(i), token(i) + 1)});
    }
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
  Buffer scales_;
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
