#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.hpp"
#include "op_bench.hpp"
#include "progress.hpp"
#include "tigon/core/context.hpp"
#include "tigon/storage/files.hpp"

namespace tigon::app {

namespace {

struct Flags {
  std::vector<std::string> ops;
  std::vector<std::string> shapes;
  std::vector<std::string> dtypes = {"f32"};
  std::string device = "cpu";
  std::string json;
  std::string variant = "both";
  int threads = 0;
  int repeats = 10;
  bool memory = false;
};

void run(const Flags& flags) {
  bench::BenchOptions options;
  options.ops = flags.ops;
  options.shapes = flags.shapes;
  options.dtypes.clear();
  for (const std::string& name : flags.dtypes) options.dtypes.push_back(dtype_from_string(name));
  options.device = device_from_string(flags.device);
  options.threads = flags.threads;
  options.repeats = flags.repeats;
  options.fused = flags.variant != "unfused";
  options.unfused = flags.variant != "fused";
  if (!flags.json.empty())
    write_text_file(flags.json, bench::json_text({}));  // a bad path is found now, not after the run

  Progress progress;
  const bench::BenchResult result = bench::bench_ops(
      options, [&](int done, int total, const std::string& what) { progress.show(done, total, what); },
      [&](const bench::BenchResult& so_far) {
        if (!flags.json.empty()) write_text_file(flags.json, bench::json_text(so_far.rows));
      });
  progress.clear();

  fmt::print("{}", bench::table_text(result));
  std::string gemm;
  for (const auto& [type, rate] : result.gemm_rates) {
    if (rate == 0) continue;
    const std::string in = result.gemm_rates.size() > 1 ? fmt::format(" in {}", to_string(type)) : "";
    gemm += fmt::format("{}{:.0f} GFLOP/s{}", gemm.empty() ? "a GEMM of " : ", ", rate * 1e-9, in);
  }
  if (gemm.empty()) gemm = "a GEMM rate that is not known";
  fmt::print(
      "\nTimes are forward + backward. \"of limit\" is the time of the least work at this machine's measured limit (a "
      "copy of\n{:.1f} GB/s read + write, {}) over the median. \"peak\" is the most memory taken beyond the inputs:\n"
      "outputs, gradients, intermediates, scratch.\n",
      result.ceilings.copy_bytes_per_second * 1e-9, gemm);
  for (const std::string& skipped : result.skipped) fmt::print("skipped {}\n", skipped);
  if (flags.memory) {
    fmt::print("\nWho holds the peak, from the ledger:\n");
    for (const bench::Row& row : result.rows) {
      fmt::print("\n{} {} {} {}: {}", row.op, row.shape, row.dtype, row.provider == "tigon" ? "fused" : "unfused",
                 row.memory_report);
    }
  }
  if (!flags.json.empty()) fmt::print("\nrows written to {}\n", flags.json);
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine and the library on it");
  bench->require_subcommand(1);
  CLI::App* ops = bench->add_subcommand("ops", "Time each op, fused against unfused, with its peak memory");
  const auto flags = std::make_shared<Flags>();

  std::string known;
  std::string shapes = "\nShapes:\n";
  for (const bench::OpTable& table : bench::all_tables()) {
    known += (known.empty() ? "" : ", ") + table.op;
    std::string usual;
    for (const std::string& shape : table.bench_shapes) usual += (usual.empty() ? "" : ", ") + shape;
    shapes += fmt::format("  {:<28} {:<34} usual: {}\n", table.op, table.shape_help, usual);
  }
  ops->add_option("--ops", flags->ops, "Which ops, separated by commas (default all): " + known)
      ->type_name("NAMES")
      ->delimiter(',');
  ops->add_option("--shapes", flags->shapes, "Shapes to time instead of the usual ones, separated by commas; see below")
      ->type_name("SHAPES")
      ->delimiter(',');
  ops->add_option("--dtype", flags->dtypes, "Storage types, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  ops->add_option("--device", flags->device, "cpu, cuda or cuda:N")->type_name("DEVICE")->capture_default_str();
  ops->add_option("--variant", flags->variant, "Which forms to time")
      ->check(CLI::IsMember({"both", "fused", "unfused"}))
      ->capture_default_str();
  ops->add_option("--repeats", flags->repeats, "Timed runs per row, after one that warms up")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  ops->add_option("--threads", flags->threads, "CPU threads, 0 for all; results do not depend on it")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
  ops->add_option("--json", flags->json, "Also write the rows to this file, after each row")->type_name("FILE");
  ops->add_flag("--memory", flags->memory, "Also print which tensors hold each peak");
  ops->footer(shapes +
              "\nAfter a shape, \":lean\", \":liger\" or \":chunk=N\" say how much of the logits exists at a "
              "time, \":f32dw\" asks for an\n"
              "f32 gradient of the weight, \":ignored=SHARE\" ignores that share of the tokens, and \":racing\" allows "
              "gradients that differ\n"
              "from run to run (GPU). \":8bit\" keeps AdamW's states in 8 bits.\n"
              "\nExample:  tigon bench ops --ops rmsnorm --shapes 4096x4096,16384x2048 --dtype f32,bf16 --memory");
  ops->callback([flags] { run(*flags); });
}

}  // namespace tigon::app
