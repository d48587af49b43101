#include "tigon/ops/global_norm.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

void global_norm(const Context& ctx, const GlobalNorm& args) {
  const Check check("global_norm", ctx);
  const Tensor& result = args.norm ? args.norm : args.pieces;
  if (args.pieces && args.tensors.empty() == !args.norm)
    check.fail("with 'pieces' a call has either tensors or 'norm'", "one of them");
  if (args.pieces && args.clip && !args.norm) check.fail("'clip' is given without 'norm'");
  if (args.norm || !args.pieces) {
    check.tensor("norm", args.norm, {1});
    check.floating("norm", args.norm);
    check.statistic("norm", args.norm, args.norm);
  }
  if (args.pieces) {
    int64_t pieces = 0;
    for (const Tensor& t : args.tensors) pieces += norm_pieces(ctx.device, t.elements());
    check.tensor("pieces", args.pieces, {args.tensors.empty() ? -1 : pieces}, "[pieces of the tensors]");
    if (args.pieces.dtype != DType::f64) check.fail("'pieces' has the wrong type", "f64");
    check.contiguous("pieces", args.pieces);
  }
  check.optional("clip", args.clip, {1});
  check.same_dtype("clip", args.clip, "norm", args.norm);
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const Tensor& t = args.tensors[i];
    const std::string name = "tensors[" + std::to_string(i) + "]";
    check.any_shape(name.c_str(), t);
    check.floating(name.c_str(), t);
    check.contiguous(name.c_str(), t);
    if (args.norm) check.statistic("norm", args.norm, t);
    check.apart("norm", args.norm, name.c_str(), t);
    check.apart("pieces", args.pieces, name.c_str(), t);
    check.apart("clip", args.clip, name.c_str(), t);
  }
  check.apart("clip", args.clip, "norm", args.norm);
  check.finite("max_norm", args.max_norm);
  if (args.max_norm < 0) check.fail("'max_norm' is negative", "0 (no clipping) or more");
  check.finite("scale", args.scale);
  const DType route_by = args.norm ? args.norm.dtype : args.tensors[0].dtype;
  route(ctx, args, route_by, &Backend::global_norm, "global_norm", {&result, &args.clip});
}

int64_t norm_pieces(Device device, int64_t elements) {
  const int64_t piece = device.kind == DeviceKind::cuda ? kNormPieceOnGpu : kNormPiece;
  return (elements + piece - 1) / piece;
}

}  // namespace tigon::ops
