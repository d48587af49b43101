#include "train/run_watch.hpp"

#include <algorithm>
#include <utility>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/trace/chrome_trace.hpp"
#include "tigon/trace/memory_timeline.hpp"
#include "tigon/trace/snapshot.hpp"
#include "train/residency/moment.hpp"
#include "train/step_work.hpp"

namespace tigon {

static_assert(kWaitForCopies.starts_with(kWaitScope) && kWaitForUpdates.starts_with(kWaitScope) &&
              kWaitForDisk.starts_with(kWaitScope));

RunWatch::RunWatch(const RunOptions& options, RunObserver& observer, const Rates& rates)
    : options_(options), observer_(observer), rates_(rates) {
  if (!options.record.empty()) make_folder(options.record);
  if (!options.trace.empty()) check_chrome_trace_path(options.trace);
  if (!options.snapshot.empty()) check_snapshot_path(options.snapshot);
  if (!options.tensorboard.empty()) make_folder(options.tensorboard);
}

void RunWatch::start(Trainer& trainer, int64_t done, int64_t last) {
  if (!options_.tensorboard.empty()) tensorboard_.emplace(options_.tensorboard, done);
  if (options_.nvtx) trainer.mark_ranges();
  if (!records() || last <= done) return;
  trainer_ = &trainer;
  // A run of fewer steps shows its last ones. A snapshot is of one step alone: all of them are the same.
  first_ = done + std::min(options_.trace_first, last - done);
  last_ = options_.trace.empty() ? first_ : done + std::min(options_.trace_last, last - done);
  trainer.record(recorder_.emplace());
}

void RunWatch::begin() {
  recorder_->begin(first_, !options_.trace.empty());
  if (const std::string& note = recorder_->recording().note; !note.empty()) observer_.on_message(note);
}

void RunWatch::write(int64_t step) {
  if (!recorder_ || std::exchange(written_, true)) return;
  if (!recorder_->on()) {
    return observer_.on_message("neither trace nor snapshot: the run ended before step " + std::to_string(first_) +
                                ", the first of --trace-steps");
  }
  recorder_->end(step);
  const Recording& recording = recorder_->recording();
  if (!options_.trace.empty())
    try_write(options_.trace, "the trace", [&] { write_chrome_trace(options_.trace, recording); });
  if (!options_.snapshot.empty())
    try_write(options_.snapshot, "the snapshot", [&] { write_snapshot(options_.snapshot, recording); });
  if (!options_.record.empty()) try_write(options_.record, "the record", [&] { write_record(); });
  if (recording.cut) observer_.on_message("the recorded steps are cut off: more happened in them than is kept");
  recorder_->forget();
}

void RunWatch::write_record() const {
  const Recording& recording = recorder_->recording();
  write_text_file(options_.record / "memory.json", memory_timeline(recording).json());
  const std::vector<StepWork> work = step_work(trainer_->model(), trainer_->config(), trainer_->parameters());
  write_text_file(options_.record / "times.json", times_json(step_times(recording), work, rates_));
}

void RunWatch::try_write(const std::filesystem::path& path, const char* what,
                         const std::function<void()>& write) const {
  try {
    write();
    const Recording& r = recorder_->recording();
    const bool several = what == std::string("the trace") && r.last_step > r.first_step;
    observer_.on_message(std::string(what) + " of step" + (several ? "s " : " ") + std::to_string(r.first_step) +
                         (several ? " to " + std::to_string(r.last_step) : "") + " is in " + path.string());
  } catch (const Error& error) {
    observer_.on_message(std::string(what) + " is not written, the run goes on: " + error.what());
  }
}

void RunWatch::on_step(const StepLine& line, int64_t used_bytes) {
  if (!tensorboard_) return;
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; };
  const StepReport& r = line.report;
  std::vector<TensorboardFile::Scalar> scalars = {{"train/loss", r.loss},
                                                  {"train/grad_norm", r.grad_norm},
                                                  {"train/learning_rate", r.lr},
                                                  {"speed/tokens_per_second", line.tokens_per_second},
                                                  {"speed/seconds_per_step", line.seconds},
                                                  {"memory/planned_mib", mebibytes(line.planned_bytes)},
                                                  {"memory/used_mib", mebibytes(used_bytes)}};
  if (line.gemm_share > 0) scalars.push_back({"speed/gemm_share", line.gemm_share});
  if (line.epoch > 0) scalars.push_back({"train/epoch", line.epoch});
  if (r.loss_scale != 1) scalars.push_back({"train/loss_scale", r.loss_scale});
  add(r.step, scalars);
}

void RunWatch::on_evaluation(int64_t step, double loss) { add(step, {{"evaluation/loss", loss}}); }

void RunWatch::add(int64_t step, const std::vector<TensorboardFile::Scalar>& scalars) {
  if (!tensorboard_) return;
  try {
    tensorboard_->add(step, scalars);
  } catch (const Error& error) {
    tensorboard_.reset();
    observer_.on_message(std::string("TensorBoard hears no more, the run goes on: ") + error.what());
  }
}

}  // namespace tigon
