#include <fmt/format.h>

#include <algorithm>

#include "op_bench.hpp"
#include "tigon/memory/ledger.hpp"

namespace tigon::bench {

namespace {

std::string work_text(const Work& work) {
  if (work.flops > 0) return fmt::format("{:.1f} GFLOP", static_cast<double>(work.flops) * 1e-9);
  return fmt::format("{:.0f} MB", static_cast<double>(work.bytes) * 1e-6);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string table_text(const BenchResult& result) {
  size_t op_width = 2, shape_width = 5;
  for (const Row& row : result.rows) {
    op_width = std::max(op_width, row.op.size());
    shape_width = std::max(shape_width, row.shape.size());
  }
  const auto line = [&](const auto& op, const auto& shape, const auto&... rest) {
    return fmt::format("{:<{}}  {:<{}}  {:<4}  {:<7}  {:>9}  {:>17}  {:>11}  {:>8}  {:>9}{:>12}", op, op_width, shape,
                       shape_width, rest...);
  };
  std::string text = line("op", "shape", "type", "variant", "median ms", "20–80 % ms", "least work", "of limit", "peak",
                          "vs unfused") +
                     "\n";
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const Row& row = result.rows[i];
    const bool fused = row.provider == "tigon";
    // The unfused row of the same case follows its fused row.
    const Row* other = fused && i + 1 < result.rows.size() ? &result.rows[i + 1] : nullptr;
    const bool paired = other != nullptr && other->provider != "tigon" && other->op == row.op &&
                        other->shape == row.shape && other->dtype == row.dtype;
    const std::string full =
        line(row.op, row.shape, row.dtype, fused ? "fused" : "unfused", fmt::format("{:.2f}", row.full_ms),
             fmt::format("{:.2f}–{:.2f}", row.q20_ms, row.q80_ms), work_text(row.work),
             fmt::format("{:.0f}%", 100 * row.floor_ms / row.full_ms), human_bytes(row.peak_bytes),
             paired ? fmt::format("{:.1f}x", other->full_ms / row.full_ms) : "");
    text += full.substr(0, full.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string json_text(const std::vector<Row>& rows) {
  std::string text = "[";
  for (const Row& row : rows) {
    text += text.size() > 1 ? ",\n " : "\n ";
    text += fmt::format(
        R"({{"op": {}, "shape": {}, "dtype": {}, "device": {}, "provider": {}, "fwd_ms": {:.6g}, "bwd_ms": {:.6g}, )"
        R"("full_ms": {:.6g}, "q20_ms": {:.6g}, "q80_ms": {:.6g}, "peak_bytes": {}, "floor_ms": {:.6g}}})",
        quoted(row.op), quoted(row.shape), quoted(row.dtype), quoted(row.device), quoted(row.provider), row.fwd_ms,
        row.bwd_ms, row.full_ms, row.q20_ms, row.q80_ms, row.peak_bytes, row.floor_ms);
  }
  return text + (rows.empty() ? "]\n" : "\n]\n");
}

}  // namespace tigon::bench
