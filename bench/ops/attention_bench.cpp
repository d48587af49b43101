#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "op_case.hpp"
#include "tigon/core/error.hpp"

namespace tigon::bench {

namespace {

struct AttentionSizes {
  int64_t batch, seq, heads, kv_heads, dim;
};

// Where each token's document begins, for rows of documents of `length` tokens, of one, and of two less than twice as
// many, in turn; a row begins with another of them than the row before.
std::vector<int64_t> document_starts(const AttentionSizes& n, int64_t length) {
  const int64_t lengths[] = {length, 1, std::max<int64_t>(1, 2 * length - 1)};
  std::vector<int64_t> starts;
  for (int64_t row = 0; row < n.batch; ++row) {
    int64_t start = 0;
    for (int64_t i = 0, document = row; i < n.seq; ++i) {
      if (i - start == lengths[document % 3]) start = i, ++document;
      starts.push_back(start);
    }
  }
  return starts;
}

// `document`: a mean length, for rows of several documents that do not see each other; 0: a row is one.
OpCase attention_case(const AttentionSizes& n, bool causal, double scale, const std::string& flags,
                      bool deterministic = true, int64_t document = 0) {
  OpCase c;
  c.op = "attention";
  c.shape = std::to_string(n.batch) + "x" + std::to_string(n.seq) + "x" + std::to_string(n.heads) + "x" +
            std::to_string(n.kv_heads) + "x" + std::to_string(n.dim);
  c.flags = flags;
  c.inputs = {{.name = "q", .sizes = {n.batch, n.seq, n.heads, n.dim}, .differentiable = true},
              {.name = "k", .sizes = {n.batch, n.seq, n.kv_heads, n.dim}, .differentiable = true},
              {.name = "v", .sizes = {n.batch, n.seq, n.kv_heads, n.dim}, .differentiable = true}};
  c.outputs = {{.name = "o", .sizes = {n.batch, n.seq, n.heads, n.dim}, .differentiable = true},
               {.name = "lse", .sizes = {n.batch, n.heads, n.seq}, .role = Role::statistic, .fused_only = true}};
  const auto forward_args = [=](const Tensors& t) {
    return ops::AttentionForward{.q = t["q"],
                                 .k = t["k"],
                                 .v = t["v"],
                                 .o = t["o"],
                                 .lse = t["lse"],
                                 .scale = scale,
                                 .causal = causal,
                                 .starts = t["starts"]};
  };
  const auto backward_args = [=](const Tensors& t) {
    return ops::AttentionBackward{.dout = t["do"],
                                  .q = t["q"],
                                  .k = t["k"],
                                  .v = t["v"],
                                  .o = t["o"],
                                  .lse = t["lse"],
                                  .dq = t["dq"],
                                  .dk = t["dk"],
                                  .dv = t["dv"],
                                  .scale = scale,
                                  .causal = causal,
                                  .starts = t["starts"],
                                  .deterministic = deterministic};
  };
  c.forward = [=](const Context& ctx, const Tensors& t) { ops::attention_forward(ctx, forward_args(t)); };
  c.backward = [=](const Context& ctx, const Tensors& t) { ops::attention_backward(ctx, backward_args(t)); };
  c.unfused_forward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::attention_forward(ctx, forward_args(t), tape);
  };
  c.unfused_backward = [=](const Context& ctx, const Tensors& t, ops::unfused::Tape& tape) {
    ops::unfused::attention_backward(ctx, backward_args(t), tape);
  };
  // Two GEMMs forward, five backward, over the pairs of query and key that see each other.
  int64_t pairs = n.batch * n.heads * (causal ? n.seq * (n.seq + 1) / 2 : n.seq * n.seq);
  if (document > 0) {
    const std::vector<int64_t> starts = document_starts(n, document);
    pairs = 0;
    for (size_t i = 0; i < starts.size(); ++i) pairs += n.heads * (static_cast<int64_t>(i) % n.seq + 1 - starts[i]);
    const auto value = [starts](int64_t i) { return static_cast<double>(starts[static_cast<size_t>(i)]); };
    c.inputs.push_back({.name = "starts", .sizes = {n.batch, n.seq}, .role = Role::place, .fill = {.value = value}});
    c.unfused_forward = nullptr;  // there is no such form
    c.unfused_backward = nullptr;
  }
  const int64_t q_elements = n.batch * n.seq * n.heads * n.dim, k_elements = n.batch * n.seq * n.kv_heads * n.dim;
  const int64_t statistics = 4 * n.batch * n.seq * n.heads;
  c.forward_work = [=](int64_t size) {
    return Work{.bytes = size * 2 * (q_elements + k_elements) + statistics, .flops = 4 * pairs * n.dim};
  };
  c.backward_work = [=](int64_t size) {
    return Work{.bytes = size * 4 * (q_elements + k_elements) + statistics, .flops = 10 * pairs * n.dim};
  };
  c.arithmetic_tolerance = 96.0;
  c.cancelling = 0.1;          // a softmax over one key has no gradient at all
  c.unfused_tolerance = 16.0;  // its scores are rounded before the exponential
  return c;
}

// "2x1024x16x4x64". Behind it, ":racing" lets backward differ from run to run where that is faster, and
// ":documents=100" makes rows of several documents.
OpCase case_from(const std::string& text, const std::string& help) {
  const size_t colon = text.find(':');
  const auto n = parse_shape("attention", text.substr(0, colon), 5, help);
  if (colon == std::string::npos) return attention_case({n[0], n[1], n[2], n[3], n[4]}, true, 0.0, "");
  const std::string option = text.substr(colon);
  const std::string documents = ":documents=";
  const int64_t length =
      option.starts_with(documents) ? std::strtoll(option.c_str() + documents.size(), nullptr, 10) : 0;
  if (option != ":racing" && length < 1) {
    throw Error(ErrorCode::invalid_argument, {.where = "attention",
                                              .what = "the shape has an option that is not known",
                                              .expected = help,
                                              .got = option.substr(1)});
  }
  OpCase c = attention_case({n[0], n[1], n[2], n[3], n[4]}, true, 0.0, "", option != ":racing", length);
  c.shape += option;
  return c;
}

}  // namespace

OpTable attention_table() {
  OpTable table{.op = "attention",
                .shape_help = "BATCHxSEQxHEADSxKVHEADSxD[:racing|:documents=LENGTH]",
                .bench_shapes = {"2x1024x16x4x64"}};
  table.make = [help = table.shape_help](const std::string& text) { return case_from(text, help); };
  for (const AttentionSizes& n : {AttentionSizes{1, 1, 1, 1, 1},
                                  {1, 1, 4, 2, 8},
                                  {2, 5, 3, 1, 7},
                                  {1, 130, 2, 2, 16},
                                  {2, 129, 4, 2, 5},
                                  {1, 70, 24, 1, 3},
                                  {1, 150, 3, 1, 33},
                                  {1, 40, 4, 1, 64},
                                  {1, 34, 2, 2, 128}}) {
    table.test_cases.push_back(attention_case(n, true, 0.0, ""));
  }
  table.every_option = [help = table.shape_help](const std::string& text) -> std::vector<OpCase> {
    const auto n = parse_shape("attention", text, 5, help);
    const AttentionSizes sizes{n[0], n[1], n[2], n[3], n[4]};
    const double usual = 1.0 / std::sqrt(static_cast<double>(sizes.dim));
    return {attention_case(sizes, false, 0.0, "not causal"), attention_case(sizes, true, 0.6 * usual, "small scale"),
            attention_case(sizes, true, -0.8 * usual, "negative scale"),
            attention_case(sizes, true, 0.0, "documents", true, std::max<int64_t>(1, sizes.seq / 5)),
            attention_case(sizes, true, -0.8 * usual, "short documents, negative scale", true, 7)};
  };
  for (const char* shape : {"2x140x4x2x8", "1x34x2x1x64"}) table.test_options_at(shape);
  return table;
}

}  // namespace tigon::bench
