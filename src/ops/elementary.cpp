#include "tigon/ops/elementary.hpp"

#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

// Same rank and sizes as y; strides may be anything.
void check_operand(const Check& check, const char* name, const Tensor& t, const Tensor& y) {
  switch (y.rank) {
    case 1: check.tensor(name, t, {y.sizes[0]}, "as y"); break;
    case 2: check.tensor(name, t, {y.sizes[0], y.sizes[1]}, "as y"); break;
    case 3: check.tensor(name, t, {y.sizes[0], y.sizes[1], y.sizes[2]}, "as y"); break;
    case 4: check.tensor(name, t, {y.sizes[0], y.sizes[1], y.sizes[2], y.sizes[3]}, "as y"); break;
    default: check.fail("'y' has the wrong rank", "1 to 4", std::to_string(y.rank));
  }
  check.floating(name, t);
  if ((t.dtype == DType::f64) != (y.dtype == DType::f64)) check.fail("f64 does not mix with other types");
}

}  // namespace

void unary(const Context& ctx, const Unary& args) {
  const Check check("unary", ctx);
  check_operand(check, "y", args.y, args.y);
  check_operand(check, "x", args.x, args.y);
  check.distinct("y", args.y);
  check.known("op", args.op, UnaryOp::gelu_erf);
  check.apart("y", args.y, "x", args.x, true);
  route(ctx, args, args.y.dtype, &Backend::unary, "unary", {&args.y});
}

void binary(const Context& ctx, const Binary& args) {
  const Check check("binary", ctx);
  check_operand(check, "y", args.y, args.y);
  check_operand(check, "a", args.a, args.y);
  check_operand(check, "b", args.b, args.y);
  check.distinct("y", args.y);
  check.known("op", args.op, BinaryOp::tanh_grad);
  check.apart("y", args.y, "a", args.a, true);
  check.apart("y", args.y, "b", args.b, true);
  route(ctx, args, args.y.dtype, &Backend::binary, "binary", {&args.y});
}

void reduce(const Context& ctx, const Reduce& args) {
  const Check check("reduce", ctx);
  check.tensor("x", args.x, {-1, -1}, "[rows, columns]");
  check.floating("x", args.x);
  check.tensor("y", args.y, {args.over_rows ? args.x.sizes[1] : args.x.sizes[0]},
               "one per row, or per column with over_rows");
  check.floating("y", args.y);
  if ((args.x.dtype == DType::f64) != (args.y.dtype == DType::f64)) check.fail("f64 does not mix with other types");
  check.distinct("y", args.y);
  check.known("op", args.op, ReduceOp::max);
  if (args.over_rows && args.op == ReduceOp::max) check.fail("max over rows is not offered");
  check.apart("y", args.y, "x", args.x);
  route(ctx, args, args.x.dtype, &Backend::reduce, "reduce", {&args.y});
}

void gather(const Context& ctx, const Gather& args) {
  const Check check("gather", ctx);
  check.tensor("x", args.x, {-1, -1}, "[rows, columns]");
  check.floating("x", args.x);
  check.tensor("index", args.index, {args.x.sizes[0]}, "rows of x");
  check.index("index", args.index);
  check.tensor("y", args.y, {args.x.sizes[0]}, "rows of x");
  check.floating("y", args.y);
  if ((args.x.dtype == DType::f64) != (args.y.dtype == DType::f64)) check.fail("f64 does not mix with other types");
  check.distinct("y", args.y);
  check.apart("y", args.y, "x", args.x);
  check.apart("y", args.y, "index", args.index);
  check.indices_below_or_negative("index", args.index, args.x.sizes[1]);
  route(ctx, args, args.x.dtype, &Backend::gather, "gather", {&args.y});
}

void scatter_add(const Context& ctx, const ScatterAdd& args) {
  const Check check("scatter_add", ctx);
  check.tensor("y", args.y, {-1, -1}, "[rows, columns]");
  check.floating("y", args.y);
  check.tensor("index", args.index, {args.y.sizes[0]}, "rows of y");
  check.index("index", args.index);
  check.tensor("x", args.x, {args.y.sizes[0]}, "rows of y");
  check.floating("x", args.x);
  if ((args.x.dtype == DType::f64) != (args.y.dtype == DType::f64)) check.fail("f64 does not mix with other types");
  check.distinct("y", args.y);
  check.apart("y", args.y, "x", args.x);
  check.apart("y", args.y, "index", args.index);
  check.indices_below_or_negative("index", args.index, args.y.sizes[1]);
  route(ctx, args, args.y.dtype, &Backend::scatter_add, "scatter_add", {&args.y});
}

}  // namespace tigon::ops
