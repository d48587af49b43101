#pragma once

#include <functional>
#include <optional>

#include "tigon/trace/recorder.hpp"
#include "tigon/trace/tensorboard.hpp"
#include "tigon/train/run.hpp"

namespace tigon {

// What a run writes for others to look at: a trace and a snapshot of a few of its steps, and scalars for TensorBoard. A
// run is worth more than any of them: where one cannot be written, the run says so and goes on.
class RunWatch {
 public:
  // Error where a path is already known to be no good.
  RunWatch(const RunOptions& options, RunObserver& observer, const Rates& rates);

  // The steps of this run are those after `done`, up to `last`. Must outlive the trainer.
  void start(Trainer& trainer, int64_t done, int64_t last);
  // Whether the recording begins with this step: then the caller waits for what is under way, and calls begin().
  bool begins_with(int64_t step) const { return recorder_ && step == first_; }
  void begin();
  // Whether it ends with this step: then the caller waits for it, and calls write().
  bool ends_with(int64_t step) const { return recorder_ && recorder_->on() && step == last_; }
  // Writes what was recorded, once; says so where that is nothing. `step`: the last that is done.
  void write(int64_t step);

  void on_step(const StepLine& line, int64_t used_bytes);
  void on_evaluation(int64_t step, double loss);

 private:
  bool records() const { return !options_.trace.empty() || !options_.snapshot.empty() || !options_.record.empty(); }
  void write_record() const;
  void add(int64_t step, const std::vector<TensorboardFile::Scalar>& scalars);
  void try_write(const std::filesystem::path& path, const char* what, const std::function<void()>& write) const;

  const RunOptions& options_;
  RunObserver& observer_;
  Rates rates_;
  const Trainer* trainer_ = nullptr;
  std::optional<Recorder> recorder_;
  int64_t first_ = 0, last_ = 0;  // the steps that are recorded
  bool written_ = false;
  std::optional<TensorboardFile> tensorboard_;
};

}  // namespace tigon
