#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "tigon/train/prediction.hpp"
#include "tigon/train/trainer.hpp"

namespace tigon {

// Where a run's tokens come from and where its results go.
struct RunOptions {
  std::filesystem::path model_folder{};  // weights to start from; empty, or with a config.json alone: random ones
  std::filesystem::path tokenizer{};     // a folder whose tokenizer goes with the output; empty: none
  std::filesystem::path adapters{};      // of PEFT, to begin with; empty: from the seed. With TrainConfig::lora
  std::filesystem::path data{};          // a token file or text; empty: random tokens
  std::filesystem::path eval_data{};     // empty: the last `eval_fraction` of the data, which is then not trained on
  double eval_fraction = 0.0;
  bool bytes = false;      // any file's bytes are tokens, whatever the vocabulary; else only text's are, of one of 256
  double epochs = 0;       // above 0: the run takes the data so often, instead of TrainConfig's steps
  int64_t eval_every = 0;  // steps; 0: at the end alone
  int64_t eval_batches = 8;
  int64_t sample_every =
      0;  // steps between texts (RunObserver::speak), and at the end; 0: none. With TrainConfig::speaks
  int64_t ignored_token = -1;
  int64_t document_end =
      -1;  // the token that ends a document, where the data do not know; TrainConfig::documents_apart
  bool shuffle = true;
  std::filesystem::path checkpoints{};  // a folder for them; empty: none
  int64_t save_every = 0;               // steps; 0: at the end alone
  int64_t keep = 2;
  bool resume = false;             // go on from one in `checkpoints`
  int64_t resume_step = -1;        // from this one, later ones are set aside; negative: from the newest whole one
  std::filesystem::path output{};  // a folder for the trained weights; empty: none
  std::filesystem::path log{};     // JSON lines; empty: none
  std::filesystem::path save_gradients{};  // of the first step, as safetensors; a new file
  std::filesystem::path trace{};           // what runs when, for Perfetto and others; empty: none
  std::filesystem::path snapshot{};        // of the device's memory in a step, for PyTorch's visualizer; empty: none
  // Which of this run's steps, counted from 1, are in the trace; the first of them is the snapshot's. A shorter run
  // shows its last.
  int64_t trace_first = 2, trace_last = 4;
  // A folder for all that is known of the first of these steps: memory.json and times.json, which the report of a study
  // is drawn from. Empty: none.
  std::filesystem::path record{};
  std::filesystem::path tensorboard{};  // a folder for its events; empty: none
  bool nvtx = false;                    // NVTX ranges, on a GPU
  std::string config{};                 // the run's flags as a file, kept with each checkpoint as run.toml; empty: none
};

// Throws Error where a value makes no sense, or lacks another that it needs. run_training asks it first.
void check_run_options(const RunOptions& options);

// One line of the log.
struct StepLine {
  StepReport report{};
  double seconds = 0;            // since the line before
  double tokens_per_second = 0;  // over the steps of this line
  double gemm_share = 0;         // of the machine's measured GEMM rate; 0: not measured
  // What the step has waited for, as shares of its time; the rest computed. Shown where something is away.
  Waits waits{};
  bool shows_waits = false, shows_disk = false;
  int64_t planned_bytes = 0;
  int64_t counted = 0;  // labels of the step that count; 0: the loss is of nothing
  double epoch = 0;     // how often the data was taken up to here; 0 for random tokens

  double compute_share() const { return 1 - waits.copies - waits.updates - waits.disk; }
};

// Who watches a run. An exception thrown here ends the run and reaches the caller of run_training; the checkpoints
// written before it stay.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_start(const Trainer&, const Sampler& /*data*/, int64_t /*first_step*/) {}
  virtual void on_step(const StepLine&) {}
  virtual void on_evaluation(int64_t /*step*/, double /*loss*/) {}
  // The turn of a text, by trainer.next_token; returns it, for the log. Called where RunOptions::sample_every says.
  virtual std::string speak(Trainer&) { return {}; }
  virtual void on_checkpoint(const std::filesystem::path&) {}
  virtual void on_message(const std::string&) {}
};

struct RunResult {
  int64_t steps = 0;      // the step the run stands at
  int64_t all_steps = 0;  // that it should come to
  int64_t trained = 0;    // how many of them were trained now, not before the checkpoint
  bool stopped = false;
  double first_loss = 0, last_loss = 0;
  double eval_loss = 0;
  double tokens_per_second = 0;  // over all steps but the first of this run
  double seconds_per_step = 0;   // the same
  Prediction predicted{};
  int64_t planned_bytes = 0, used_bytes = 0;
  // A GPU's memory in use at the end, less the plan: its context, what libraries took, other processes.
  int64_t beyond_plan_bytes = 0;
  // The most that the process has held of the host's memory: on a CPU the plan, and what the program and its libraries
  // hold beside it. 0: not known.
  int64_t process_peak_bytes = 0;
  Traffic traffic;  // of all steps of this run
};

// Trains from where the options say to config().steps, or until `stop` is set: then the step under way is finished and
// the state saved. A step's speed is compared with `rates`, where they are known.
RunResult run_training(const ModelConfig& model, TrainConfig train, const RunOptions& options, RunObserver& observer,
                       const std::atomic<bool>& stop, const Rates& rates = {});

}  // namespace tigon
