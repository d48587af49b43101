#pragma once

#include "backend/cpu/rows.hpp"

// What swiglu and geglu do around their rows.
namespace tigon::cpu {

template <class Args, class Rows>
void gated_forward(const Context& ctx, const Args& args, const Rows& rows) {
  if (ctx.measuring()) return;
  const bool stream_out = streams_apart_from(args.c, {args.a, args.b});
  const Blocks blocks = row_blocks(args.a.sizes[0], args.a.sizes[1] * size_of(args.a.dtype));
  parallel_tasks(ctx, blocks.count,
                 [&](int64_t block) { rows(args, stream_out, blocks.begin(block), blocks.end(block)); });
}

template <class Args, class Rows>
void gated_backward(const Context& ctx, const Args& args, const Rows& rows) {
  if (ctx.measuring()) return;
  const bool stream_out = streams_apart_from(args.da, {args.a}) && streams_apart_from(args.db, {args.b});
  const Blocks blocks = row_blocks(args.a.sizes[0], args.a.sizes[1] * size_of(args.a.dtype));
  parallel_tasks(ctx, blocks.count,
                 [&](int64_t block) { rows(args, stream_out, blocks.begin(block), blocks.end(block)); });
}

}  // namespace tigon::cpu
