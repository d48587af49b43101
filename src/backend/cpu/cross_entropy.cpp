// cross_entropy: a row of logits comes from memory once; its gradient is formed while the row is still in cache.
#include <cstring>

#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/loss_rows.hpp"
#include "backend/cpu/rows.hpp"

namespace tigon::cpu {

namespace {

std::byte* row_of(const Tensor& t, int64_t i) {
  return static_cast<std::byte*>(t.data) + i * t.strides[0] * size_of(t.dtype);
}

// body(token, row, dlogits row) for each counted token, in parallel; ignored tokens get a zero gradient.
template <class Body>
void for_tokens(const Context& ctx, const LossBatch& batch, const Tensor& logits, const Tensor& dlogits,
                const Body& body) {
  const int64_t vocab = logits.sizes[1];
  const Blocks blocks = row_blocks(logits.sizes[0], vocab * size_of(logits.dtype));
  parallel_tasks(ctx, blocks.count, [&](int64_t block) {
    for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
      std::byte* gradient = dlogits ? row_of(dlogits, i) : nullptr;
      if (batch.counted(i)) {
        body(i, LogitRow{.dtype = logits.dtype, .logits = row_of(logits, i), .count = vocab}, gradient);
      } else {
        batch.ignore_row(i);
        if (gradient != nullptr) std::memset(gradient, 0, static_cast<size_t>(vocab * size_of(dlogits.dtype)));
      }
    }
    if (dlogits) LossBatch::flush_streams();
  });
}

bool streams_apart(const Tensor& dlogits, const Tensor& logits) {
  return dlogits && dlogits.data != logits.data && streams(dlogits);
}

}  // namespace

void cross_entropy_forward(const Context& ctx, const ops::CrossEntropyForward& args) {
  const LossBatch batch(ctx, {.target = args.target,
                              .class_weight = args.class_weight,
                              .token_scale = args.token_scale,
                              .options = args.options,
                              .out = args.out,
                              .vocab = args.logits.sizes[1]});
  if (ctx.measuring()) return;
  const bool stream_out = streams_apart(args.dlogits, args.logits);
  for_tokens(ctx, batch, args.logits, args.dlogits, [&](int64_t token, const LogitRow& row, std::byte* gradient) {
    const RowScale scale = batch.add_row(token, row);
    if (gradient != nullptr) batch.gradient_row(token, row, scale, gradient, stream_out);
  });
  batch.finish();
}

void cross_entropy_backward(const Context& ctx, const ops::CrossEntropyBackward& args) {
  const LossBatch batch(ctx, {.target = args.target,
                              .class_weight = args.class_weight,
                              .token_scale = args.token_scale,
                              .dloss = args.dloss,
                              .options = args.options,
                              .vocab = args.logits.sizes[1]});
  if (ctx.measuring()) return;
  const bool stream_out = streams_apart(args.dlogits, args.logits);
  for_tokens(ctx, batch, args.logits, args.dlogits, [&](int64_t token, const LogitRow& row, std::byte* gradient) {
    batch.gradient_row(token, row, batch.row_scale(row, args.lse.as<float>()[token]), gradient, stream_out);
  });
}

}  // namespace tigon::cpu
