// Every product of a block with a weight, and with the adapter beside it: y = x·Wᵀ + scale·(x·Aᵀ)·Bᵀ. What x·Aᵀ gives
// has a few columns, so it is made again in backward and kept by nobody.
#include "model/stages.hpp"
#include "tigon/ops/elementary.hpp"
#include "tigon/ops/linear.hpp"

namespace tigon {

namespace {

Tensor rows_of(const Tensor& t, Rows rows) { return t.slice(0, rows.begin, rows.end < 0 ? t.sizes[0] : rows.end); }

// What there is beside some rows of a weight, whose modules follow each other in A and in B.
struct Adapter {
  std::vector<LoraPart> parts;
  int64_t first_row;  // of the weight
  Tensor a, b;        // of these parts

  int64_t ranks() const { return parts.back().a + parts.back().rank - parts.front().a; }
  // A part's columns of x·Aᵀ, of y, and its B.
  Tensor ranks_of(const Tensor& u, size_t part) const {
    const int64_t begin = parts[part].a - parts[0].a;
    return u.slice(1, begin, begin + parts[part].rank);
  }
  Tensor outputs_of(const Tensor& y, size_t part) const {
    return y.slice(1, parts[part].begin - first_row, parts[part].end - first_row);
  }
  Tensor b_of(const Tensor& b_or_gradient, size_t part) const {
    const LoraPart& p = parts[part];
    return b_or_gradient.slice(0, p.b - parts[0].b, p.b_end() - parts[0].b).reshape({p.end - p.begin, p.rank});
  }
  Rows rows_in_a() const { return {parts.front().a, parts.back().a + parts.back().rank}; }
  Rows rows_in_b() const { return {parts.front().b, parts.back().b_end()}; }
};

// Without parts where these rows have none.
Adapter adapter_of(const BlockRun& run, BlockWeight which, Rows rows) {
  const LoraConfig& lora = run.shape.lora;
  Adapter adapter{.parts = {}, .first_row = rows.begin, .a = {}, .b = {}};
  for (const LoraPart& part : lora_parts(run.shape.config, lora, which)) {
    if (part.begin >= rows.begin && (rows.end < 0 || part.end <= rows.end)) adapter.parts.push_back(part);
  }
  if (adapter.parts.empty()) return adapter;
  adapter.a = rows_of(run.w(adapter_a(which)), adapter.rows_in_a());
  adapter.b = rows_of(run.w(adapter_b(which)), adapter.rows_in_b());
  return adapter;
}

OwnedTensor make_ranks(const BlockRun& run, const Adapter& adapter, const char* name, int64_t tokens) {
  return {run.ctx, name, run.shape.dtype, {tokens, adapter.ranks()}, MemoryClass::activations};
}

// u ← scale·u, part by part.
void scale_parts(const BlockRun& run, const Adapter& adapter, const Tensor& u) {
  for (size_t p = 0; p < adapter.parts.size(); ++p) {
    const Tensor part = adapter.ranks_of(u, p);
    ops::unary(run.ctx, {.x = part, .y = part, .alpha = run.shape.lora.scale(adapter.parts[p].module)});
  }
}

// scale·x·Aᵀ.
OwnedTensor narrowed(const BlockRun& run, const Adapter& adapter, const Tensor& x) {
  OwnedTensor u = make_ranks(run, adapter, "lora.u", x.sizes[0]);
  ops::linear_forward(run.ctx, {.x = x, .weight = adapter.a, .y = u});
  scale_parts(run, adapter, u);
  return u;
}

void adapter_backward(const BlockRun& run, const Adapter& adapter, const ProjectBackward& args,
                      const ProjectGradients& gradients) {
  OwnedTensor du = make_ranks(run, adapter, "lora.du", args.dy.sizes[0]);
  for (size_t p = 0; p < adapter.parts.size(); ++p) {
    ops::linear_backward(
        run.ctx,
        {.dy = adapter.outputs_of(args.dy, p), .weight = adapter.b_of(adapter.b, p), .dx = adapter.ranks_of(du, p)});
  }
  scale_parts(run, adapter, du);
  ops::LinearBackward through_a{.dy = du};
  if (args.dx.present()) {
    through_a.weight = adapter.a;
    through_a.dx = args.dx;
    through_a.accumulate_dx = true;
  }
  if (args.x.present()) {
    through_a.x = args.x;
    through_a.dweight = rows_of(gradients.a.tensor, adapter.rows_in_a());
    through_a.accumulate_dweight = gradients.a.accumulate;
  }
  ops::linear_backward(run.ctx, through_a);
  if (!args.x.present()) return;
  const OwnedTensor u = narrowed(run, adapter, args.x);
  const Tensor db = rows_of(gradients.b.tensor, adapter.rows_in_b());
  for (size_t p = 0; p < adapter.parts.size(); ++p) {
    ops::linear_backward(run.ctx, {.dy = adapter.outputs_of(args.dy, p),
                                   .x = adapter.ranks_of(u, p),
                                   .dweight = adapter.b_of(db, p),
                                   .accumulate_dweight = gradients.b.accumulate});
  }
}

}  // namespace

void project_forward(const BlockRun& run, BlockWeight which, const Tensor& x, const Tensor& y, Rows rows) {
  ops::LinearForward linear{.x = x, .weight = rows_of(run.w(which), rows), .y = y};
  if (which == BlockWeight::qkv && run.w(BlockWeight::qkv_bias).present())
    linear.bias = rows_of(run.w(BlockWeight::qkv_bias), rows);
  ops::linear_forward(run.ctx, linear);
  const Adapter adapter = adapter_of(run, which, rows);
  if (adapter.parts.empty()) return;
  const OwnedTensor u = narrowed(run, adapter, x);
  for (size_t p = 0; p < adapter.parts.size(); ++p) {
    ops::linear_forward(run.ctx, {.x = adapter.ranks_of(u, p),
                                  .weight = adapter.b_of(adapter.b, p),
                                  .y = adapter.outputs_of(y, p),
                                  .accumulate_y = true});
  }
}

ProjectGradients project_gradients(const BlockRun& run, BlockWeight which) {
  const auto of = [&](BlockWeight weight) { return run.gradients->gradient(weight); };
  ProjectGradients gradients{.weight = of(which), .bias = {}, .a = of(adapter_a(which)), .b = of(adapter_b(which))};
  if (which == BlockWeight::qkv) gradients.bias = of(BlockWeight::qkv_bias);
  return gradients;
}

void project_backward(const BlockRun& run, BlockWeight which, const ProjectBackward& args) {
  ProjectGradients gradients;
  if (args.x.present()) gradients = args.gradients ? *args.gradients : project_gradients(run, which);
  ops::LinearBackward linear{.dy = args.dy, .dx = args.dx, .accumulate_dx = args.accumulate_dx};
  if (args.dx.present()) linear.weight = rows_of(run.w(which), args.rows);
  if (gradients.weight.tensor.present()) {
    linear.x = args.x;
    linear.dweight = rows_of(gradients.weight.tensor, args.rows);
    linear.accumulate_dweight = gradients.weight.accumulate;
    if (gradients.bias.tensor.present()) linear.dbias = rows_of(gradients.bias.tensor, args.rows);
  }
  if (linear.dx.present() || linear.dweight.present()) ops::linear_backward(run.ctx, linear);
  const Adapter adapter = adapter_of(run, which, args.rows);
  if (!adapter.parts.empty()) adapter_backward(run, adapter, args, gradients);
}

}  // namespace tigon
