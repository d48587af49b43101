#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/train/planner.hpp"
#include "tigon/train/prediction.hpp"

namespace tigon {

// A way to train, to be set beside others.
struct Strategy {
  std::string name;   // "fused", a part of file names
  std::string title;  // "Fused kernels"
  std::string flags;  // of tigon train, as they stand on a command line
};

// A rectangle of shapes, of some strategies or of all.
struct Sweep {
  std::vector<int64_t> batches{}, seqs{};
  int64_t accumulate = 1;
  std::vector<std::string> strategies{};  // empty: all
};

// What a study asks.
struct Study {
  std::string name;  // "cpu"
  std::string title;
  std::string model = "llama-3.2-1b";
  std::string flags;      // of every point
  int64_t cap_bytes = 0;  // of the device's memory that a point may take; 0: all
  int64_t warmup = 2;     // steps that are not counted
  int64_t steps = 10;     // that are
  std::string kernels;    // flags of tigon bench ops, which then runs too; empty: it does not
  std::vector<Strategy> strategies;
  std::vector<Sweep> sweeps;
};

struct StudyPoint {
  std::string id{};  // "fused-b8-s1024"
  std::string strategy{};
  int64_t batch = 1, accumulate = 1, seq = 1;
};
// In the order in which they run, each shape once. Error where a study makes no sense.
std::vector<StudyPoint> study_points(const Study& study);

// From TOML; docs/study.md says what may stand in it. `where` names it in errors.
Study study_from_toml(std::string_view text, const std::string& where);
std::vector<std::string> study_preset_names();
// The TOML of a preset, to start from.
std::string_view study_preset_text(std::string_view name);

// The words of a point's `tigon train`, without what only says where its results go.
std::vector<std::string> point_words(const Study& study, const StudyPoint& point);

// A command line that a shell takes apart into these words again.
std::string command_text(const std::vector<std::string>& words);

// What is known of a point before it runs.
struct PlannedPoint {
  ModelConfig model{};
  int64_t parameters = 0;
  MemoryPlan plan{};
  StudyFormulas formulas{};
  double flops = 0;  // of a step, recompute included
};

enum class PointStatus { done, out_of_memory, failed };

struct Quantiles {
  double median = 0, q20 = 0, q80 = 0;
};
Quantiles quantiles(std::vector<double> values);

// What was found out about a point.
struct PointResult {
  StudyPoint point{};
  std::string command{};
  PointStatus status = PointStatus::failed;
  bool proved = false;  // it ran, and what is said of it is what happened
  std::string why{};    // it is not done
  SpaceBytes planned{};
  int64_t used_bytes = 0, beyond_plan_bytes = 0, process_peak_bytes = 0;
  int64_t steps = 0, tokens = 0;  // measured; a step's
  Quantiles seconds{}, tokens_per_second{};
  double loss = 0, gemm_share = 0;
  bool waits = false;  // whether these are known: shares of a step
  double compute_share = 0, copies_share = 0, updates_share = 0;

  // Of the device: the plan, and what a GPU holds beside it.
  int64_t peak_bytes() const { return planned.device + beyond_plan_bytes; }
};

// Who watches a study.
class StudyObserver {
 public:
  virtual ~StudyObserver() = default;
  // Before a point, or "kernels"; `left`: seconds for all that follows, as far as it is known, else negative.
  virtual void on_begin(int64_t /*done*/, int64_t /*all*/, const std::string& /*what*/, double /*left*/) {}
  virtual void on_point(const PointResult&) {}
  virtual void on_message(const std::string&) {}
};

struct StudyOptions {
  std::filesystem::path folder{};
  std::string command{};  // as it was given, to be kept with the results
  bool prove = false;     // also run what by its plan has no room
  Rates rates{};
  Device device{};
  // What `tigon train` with these words would plan. Error where the words are no good.
  std::function<PlannedPoint(const std::vector<std::string>& words)> plan{};
  // The program; empty: this one.
  std::filesystem::path program{};
};

struct StudyOutcome {
  int64_t points = 0, done = 0, out_of_memory = 0, failed = 0, kept = 0;  // kept: found from an earlier run
  bool stopped = false, kernels_failed = false;
  int64_t smallest_plan = 0;  // where nothing fitted: of the device, of the point that needs the least; else 0
};

// Runs each point in a process of its own, unless its result is in the folder already. Results are kept point by point;
// docs/study.md says in which files.
StudyOutcome run_study(const Study& study, const StudyOptions& options, StudyObserver& observer,
                       const std::atomic<bool>& stop);

}  // namespace tigon
