#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

void embedding_forward(const Context& ctx, const ops::EmbeddingForward& args) {
  if (ctx.measuring()) return;
  for (int64_t i = 0; i < args.y.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.y.sizes[1]; ++j)
      at(args.y, i, j) = args.scale * at(args.weight, index_at(args.ids, i), j);
  }
}

void embedding_backward(const Context& ctx, const ops::EmbeddingBackward& args) {
  if (ctx.measuring()) return;
  if (!args.accumulate_dweight) {
    for (int64_t v = 0; v < args.dweight.sizes[0]; ++v) {
      for (int64_t j = 0; j < args.dweight.sizes[1]; ++j) at(args.dweight, v, j) = 0;
    }
  }
  for (int64_t i = 0; i < args.dy.sizes[0]; ++i) {
    for (int64_t j = 0; j < args.dy.sizes[1]; ++j)
      at(args.dweight, index_at(args.ids, i), j) += args.scale * at(args.dy, i, j);
  }
}

}  // namespace tigon::reference
