#include <algorithm>
#include <cmath>

#include "op_case.hpp"

namespace tigon::bench {

namespace {

struct RopeShape {
  int64_t batch, seq, heads, kv_heads, width;
};

enum class RopeView {
  tokens,      // [tokens, heads, D]
  batched,     // [batch, heads, seq, D]
  transposed,  // [batch, heads, seq, D] over memory [batch, seq, heads, D]
};

enum class RopePositions { counted, per_token, per_batch };

struct RopeOptions {
  RopeView view = RopeView::tokens;
  ops::RopePairing pairing = ops::RopePairing::half;
  ops::RopeScaling scaling{};
  int64_t rotary = 0;
  RopePositions positions = RopePositions::counted;
  int64_t table_rows = 0;  // 0: no tables
  bool full_width = false;
  Role table_role = Role::statistic;
};

// A table of cos or sin, in either width.
Slot table_slot(const std::string& name, const RopeOptions& options, int64_t half) {
  const int64_t columns = options.full_width ? 2 * half : half;
  const bool twice = options.full_width && options.pairing == ops::RopePairing::interleaved;
  const bool is_cos = name == "cos";
  const auto value = [=](int64_t element) {
    const int64_t row = element / columns, column = element % columns, d = twice ? column / 2 : column % half;
    const double angle =
        static_cast<double>(row) * std::pow(10000.0, -static_cast<double>(d) / static_cast<double>(half));
    return is_cos ? std::cos(angle) : std::sin(angle);
  };
  return {.name = name, .sizes = {options.table_rows, columns}, .role = options.table_role, .fill = {.value = value}};
}

OpCase rope_case(const RopeShape& n, const RopeOptions& options, const std::string& flags) {
  OpCase c;
  c.op = "rope";
  for (const int64_t size : {n.batch, n.seq, n.heads, n.kv_heads, n.width}) {
    c.shape += (c.shape.empty() ? "" : "x") + std::to_string(size);
  }
  c.flags = flags;
  const auto sizes = [&](int64_t heads) -> std::vector<int64_t> {
    switch (options.view) {
      case RopeView::tokens: return {n.batch * n.seq, heads, n.width};
      case RopeView::batched: return {n.batch, heads, n.seq, n.width};
      case RopeView::transposed: return {n.batch, n.seq, heads, n.width};
    }
    return {};
  };
  c.inputs = {{.name = "q", .sizes = sizes(n.heads), .differentiable = true},
              {.name = "k", .sizes = sizes(n.kv_heads), .differentiable = true}};
  c.outputs = {{.name = "q_out", .sizes = sizes(n.heads), .differentiable = true},
               {.name = "k_out", .sizes = sizes(n.kv_heads), .differentiable = true}};
  const int64_t tokens = options.view == RopeView::tokens ? n.batch * n.seq : n.seq;
  if (options.positions != RopePositions::counted) {
    Slot positions{.name = "positions", .sizes = {tokens}, .role = Role::index};
    if (options.positions == RopePositions::per_batch) positions.sizes = {n.batch, n.seq};
    positions.fill.limit = options.table_rows > 0 ? options.table_rows : 100000;
    c.inputs.push_back(positions);
  }
  if (options.table_rows > 0) {
    const int64_t half = (options.rotary == 0 ? n.width : options.rotary) / 2;
    c.inputs.push_back(table_slot("cos", options, half));
    c.inputs.push_back(table_slot("sin", options, half));
  }
  const bool transposed = options.view == RopeView::transposed;
  const auto args_of = [=](const Tensors& t, const std::string& prefix, const std::string& from,
                           const std::string& to) {
    const auto heads = [&](const std::string& name) { return transposed ? t[name].transpose(1, 2) : t[name]; };
    return ops::Rope{.q = heads(prefix + "q" + from),
                     .k = heads(prefix + "k" + from),
                     .q_out = heads(prefix + "q" + to),
                     .k_out = heads(prefix + "k" + to),
                     .cos = t["cos"],
                     .sin = t["sin"],
                     .positions = t["positions"],
                     .theta = 500000.0,
                     .scaling = options.scaling,
                     .rotary_dim = options.rotary,
                     .pairing = options.pairing};
  };
  const auto forward_args = [=](const Tensors& t) { return args_of(t, "", "", "_out"); };
  const auto backward_args = [=](const Tensors& t) { return args_of(t, "d", "_out", ""); };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::rope_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::rope_backward(ctx, backward_args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    ops::unfused::rope_forward(ctx, forward_args(t));
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape&) {
    ops::unfused::rope_backward(ctx, backward_args(t));
  };
  const auto work = [=](int64_t size) {
    return Work{.bytes = 2 * size * n.batch * n.seq * (n.heads + n.kv_heads) * n.width};
  };
  c.forward_work = work;
  c.backward_work = work;
  return c;
}

std::vector<OpCase> every_option_of(const RopeShape& n) {
  using enum ops::RopePairing;
  using enum ops::RopeScalingKind;
  using enum RopeView;
  using enum RopePositions;
  std::vector<OpCase> cases;
  const auto add = [&](const RopeOptions& options, const std::string& flags) {
    cases.push_back(rope_case(n, options, flags));
  };
  const int64_t half_width = n.width / 4 * 2, fourth = std::max<int64_t>(2, n.width / 8 * 2);
  for (const RopeView view : {tokens, batched, transposed}) {
    const std::string name = view == tokens ? "tokens" : view == batched ? "batched" : "transposed";
    add({.view = view}, name);
    add({.view = view, .pairing = interleaved}, name + " interleaved");
    add({.view = view, .rotary = half_width}, name + " partial");
    add({.view = view, .pairing = interleaved, .rotary = fourth}, name + " partial interleaved");
    add({.view = view, .positions = per_token}, name + " positions");
  }
  add({.view = batched, .positions = per_batch}, "positions by batch");
  const ops::RopeScaling long_linear{.kind = linear, .factor = 4.0};
  const ops::RopeScaling long_llama3{.kind = llama3, .factor = 8.0};
  const ops::RopeScaling long_yarn{.kind = yarn, .factor = 4.0, .original_max_position = 4096};
  const ops::RopeScaling long_yarn_factor{
      .kind = yarn, .factor = 4.0, .original_max_position = 4096, .beta_fast = 16, .attention_factor = 0.9};
  add({.scaling = long_linear, .positions = per_token}, "linear");
  add({.scaling = long_llama3, .positions = per_token}, "llama3");
  add({.scaling = long_yarn, .positions = per_token}, "yarn");
  add({.scaling = long_yarn_factor, .positions = per_token}, "yarn attention factor");
  for (const bool full : {false, true}) {
    for (const auto pairing : {half, interleaved}) {
      for (const Role role : {Role::statistic, Role::storage}) {
        const std::string name = std::string("tables") + (full ? " full" : "") +
                                 (pairing == interleaved ? " interleaved" : "") +
                                 (role == Role::storage ? " storage type" : "");
        RopeOptions options{
            .view = batched, .pairing = pairing, .table_rows = n.seq, .full_width = full, .table_role = role};
        add(options, name + " shared");
        options.table_rows = n.batch * n.seq;
        add(options, name + " by batch");
        options.table_rows = n.batch * n.seq + 32;
        options.positions = per_batch;
        add(options, name + " by position");
      }
    }
  }
  return cases;
}

}  // namespace

OpTable rope_table() {
  OpTable table{.op = "rope", .shape_help = "BATCHxSEQxHEADSxKVHEADSxD", .bench_shapes = {"8x1024x32x8x64"}};
  const auto shape_from = [help = table.shape_help](const std::string& text) {
    const auto n = parse_shape("rope", text, 5, help);
    return RopeShape{n[0], n[1], n[2], n[3], n[4]};
  };
  table.make = [=](const std::string& text) { return rope_case(shape_from(text), {.view = RopeView::transposed}, ""); };
  table.every_option = [=](const std::string& text) { return every_option_of(shape_from(text)); };
  for (const RopeView view : {RopeView::tokens, RopeView::batched, RopeView::transposed}) {
    for (const RopeShape& n : {RopeShape{1, 1, 1, 1, 2}, {2, 33, 4, 2, 64}, {3, 5, 3, 1, 38}}) {
      table.test_cases.push_back(rope_case(n, {.view = view}, "view " + std::to_string(static_cast<int>(view))));
    }
  }
  table.test_options_at("2x9x4x2x34");
  return table;
}

}  // namespace tigon::bench
