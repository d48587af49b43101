#include "tigon/ops/embedding.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void embedding_forward(const Context& ctx, const EmbeddingForward& args) {
  const Check check("embedding_forward", ctx);
  check.tensor("ids", args.ids, {-1}, "[tokens]");
  check.index("ids", args.ids);
  check.contiguous("ids", args.ids);
  check.tensor("weight", args.weight, {-1, -1}, "[V, hidden]");
  check.floating("weight", args.weight);
  check.rows_contiguous("weight", args.weight);
  check.tensor("y", args.y, {args.ids.sizes[0], args.weight.sizes[1]}, "tokens of ids, hidden of weight");
  check.same_dtype("y", args.y, "weight", args.weight);
  check.writable("y", args.y);
  check.finite("scale", args.scale);
  check.apart("y", args.y, "weight", args.weight);
  check.apart("y", args.y, "ids", args.ids);
  check.indices_below("ids", args.ids, args.weight.sizes[0]);
  route(ctx, args, args.weight.dtype, &Backend::embedding_forward, "embedding_forward", {&args.y});
}

void embedding_backward(const Context& ctx, const EmbeddingBackward& args) {
  const Check check("embedding_backward", ctx);
  check.tensor("ids", args.ids, {-1}, "[tokens]");
  check.index("ids", args.ids);
  check.contiguous("ids", args.ids);
  check.tensor("dy", args.dy, {args.ids.sizes[0], -1}, "tokens of ids, hidden");
  check.floating("dy", args.dy);
  check.rows_contiguous("dy", args.dy);
  check.tensor("dweight", args.dweight, {-1, args.dy.sizes[1]}, "V, hidden of dy");
  check.parameter("dweight", args.dweight, args.dy);
  check.writable("dweight", args.dweight);
  check.finite("scale", args.scale);
  check.apart("dweight", args.dweight, "dy", args.dy);
  check.apart("dweight", args.dweight, "ids", args.ids);
  check.indices_below("ids", args.ids, args.dweight.sizes[0]);
  route(ctx, args, args.dy.dtype, &Backend::embedding_backward, "embedding_backward", {&args.dweight});
}

}  // namespace tigon::ops
