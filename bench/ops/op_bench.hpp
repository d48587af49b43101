#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ceilings.hpp"
#include "op_case.hpp"

namespace tigon::bench {

// One line of the table and one object of the JSON; every comparison script writes the same keys with other providers.
struct Row {
  std::string op;
  std::string shape;
  std::string dtype;
  std::string device;
  std::string provider;  // "tigon" (fused) or "tigon-unfused"
  double fwd_ms = 0;     // medians; on a GPU each with the gaps around it, which full_ms does not have
  double bwd_ms = 0;     // 0 where one call does both, or there is no backward
  double full_ms = 0;
  double q20_ms = 0;  // of full
  double q80_ms = 0;
  int64_t peak_bytes = 0;  // most memory taken beyond inputs and upstream gradients: outputs, gradients, intermediates
  double floor_ms = 0;     // fewest bytes / measured copy bandwidth, or fewest FLOPs / measured GEMM rate, the larger
  Work work{};
  std::string memory_report{};  // who held the peak
};

struct BenchOptions {
  std::vector<std::string> ops;     // empty: all
  std::vector<std::string> shapes;  // empty: each op's own
  std::vector<DType> dtypes = {DType::f32};
  Device device{};
  int threads = 0;
  int repeats = 10;
  bool fused = true;
  bool unfused = true;
};

struct BenchResult {
  Ceilings ceilings;                                 // beside the last row
  std::vector<std::pair<DType, double>> gemm_rates;  // FLOP/s in each storage type asked for; on a GPU bf16's alone
  std::vector<Row> rows;
  std::vector<std::string> skipped;  // what the device's backend does not have, with the reason
};

// Runs everything asked for. `progress` is told what comes next as (done, total, what); `on_row` gets each row as soon
// as it is measured. Throws Error on an unknown op, a bad shape or one that does not fit the host before anything runs.
BenchResult bench_ops(const BenchOptions& options, const std::function<void(int, int, const std::string&)>& progress,
                      const std::function<void(const BenchResult&)>& on_row);

// The rows as a table for people.
std::string table_text(const BenchResult& result);
// The rows as a JSON list.
std::string json_text(const std::vector<Row>& rows);

}  // namespace tigon::bench
