#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tigon/trace/recorder.hpp"
#include "tigon/train/data.hpp"
#include "tigon/train/planner.hpp"

namespace tigon {

// Seconds that whoever computes has waited for what is elsewhere.
struct Waits {
  double copies = 0;   // to and from the host
  double updates = 0;  // of parameters that the next layer needs
  double disk = 0;     // copies from and to the disk, and updates of what is there
};

// What one step came to.
struct StepReport {
  int64_t step = 0;  // counts from 1
  double loss = 0;   // the mean over the tokens that count
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 1;
  int64_t tokens = 0;    // in the step
  double seconds = 0;    // on a GPU, from the end of the step before; else 0
  Waits waits{};         // where something is away from the device
  bool skipped = false;  // overflowed under a dynamic loss scale
  bool finite = true;    // the loss and the gradient's norm
};

// What steps have moved between the device and the host, and who has updated beside them: parameters by whom, and how
// long the host has taken.
struct Traffic {
  int64_t up_bytes = 0;    // to the device
  int64_t down_bytes = 0;  // to the host
  double update_seconds = 0;
  int64_t updated_by_host = 0;
  int64_t updated_by_device = 0;
  DiskTraffic disk{};  // by all that was done, steps or not
};

// A model being trained: plans its memory, takes it once, and runs steps in it. One thread at a time uses it; trainers
// of different threads do not know of each other.
class Trainer {
 public:
  Trainer(const ModelConfig& model, const TrainConfig& train);
  ~Trainer();

  const ModelConfig& model() const noexcept;
  const TrainConfig& config() const noexcept;
  const ParameterList& parameters() const noexcept;
  const MemoryPlan& plan() const noexcept;
  // Bytes that steps have touched so far: equal to plan().total_bytes() from the first step on.
  int64_t used_bytes() const noexcept;
  // In every place; equal to plan().bytes().
  SpaceBytes used() const noexcept;
  // Where on the disk, and how it gets there: "1.5 GiB in /data, past the page cache, by io_uring". Empty: nothing is.
  std::string disk_text() const;

  // Weights from the seed, or from a Hugging Face folder. A run begins anew: states, steps and loss scale are those of
  // a new Trainer. One of these, or restore_checkpoint, comes before everything below. Files that do not fit are an
  // Error before anything is changed; where one cannot be read to its end, there are no weights until they are given
  // again.
  void initialize();
  void load_weights(const std::filesystem::path& folder);
  // Beside adapters (TrainConfig::lora) the two above are of the frozen model, and the adapters begin as the seed says;
  // this reads them from a folder of PEFT instead, after one of those.
  void load_adapters(const std::filesystem::path& folder);
  // Writes a folder that transformers loads, or where adapters are trained theirs, which PEFT loads. Weights that are
  // not finite are an Error, here and in a checkpoint.
  void save_weights(const std::filesystem::path& folder) const;
  // Text to write as config.json instead of our own, such as the one the weights came with.
  void set_config_text(std::string text);
  // What adapters say they belong to: the model's folder or name.
  void set_base_name(std::string name);
  // The run's flags, for run.toml in each checkpoint. Empty: none.
  void set_run_text(std::string text);

  // Queues the next step, of config().accumulate micro-batches. On a GPU it returns before the step is done. Batches
  // that do not fit are an Error before anything is changed; after any other one (a file, the device) the state is not
  // whole, and a new Trainer is needed.
  void submit(const std::vector<TokenBatch>& micros);
  // The same, with one micro-batch on the host at a time: `fill` gets each of them empty, in their order. What it
  // throws reaches the caller, and nothing is changed.
  void submit_from(const std::function<void(int64_t micro, TokenBatch& batch)>& fill);
  // The results of the oldest step that was submitted and not collected; waits for it.
  StepReport collect();
  int64_t pending() const noexcept;
  // Waits for the last update where it goes on beside the step, and throws what it failed of.
  void finish() const;
  // How many steps may be under way before one must be collected.
  int64_t most_pending() const noexcept;
  // Sum of the losses of one micro-batch, with no gradient.
  double evaluate(const TokenBatch& batch);
  // How well each token of the vocabulary would follow `text`, which is read anew each time: for a look at what was
  // learnt. At most config().speaks tokens.
  std::vector<float> next_token(std::span<const int32_t> text);

  // Steps submitted so far, skipped ones included.
  int64_t step() const noexcept;
  int64_t skipped() const noexcept;

  // The state of the run in a new folder: weights as save_weights writes them, the optimizer's states, and
  // `settings`, which restore_checkpoint() compares. The folder appears whole or not at all; a checkpoint of that name
  // is replaced, anything else that stands there is an Error.
  void save_checkpoint(const std::filesystem::path& folder, const std::map<std::string, std::string>& settings) const;
  // Throws Error, before anything is changed, unless all files are whole and the settings are the same. Where a file
  // cannot be read after that, there are no weights until they are given again. Of adapters a checkpoint holds nothing
  // else: the frozen model is initialized or loaded before.
  void restore_checkpoint(const std::filesystem::path& folder, const std::map<std::string, std::string>& settings);

  // The gradients of the next step, before clipping, by Hugging Face names, into a safetensors file.
  void save_next_gradients(const std::filesystem::path& file);
  // How often each stage has run forward.
  const StageRuns& stage_runs() const noexcept;
  Traffic traffic() const noexcept;

  // Tells the recorder of every step from now on, and of the device's memory. Steps that are recorded are queued kernel
  // by kernel, so that each is known by its op. Once, before the first step; the recorder must outlive the trainer.
  void record(Recorder& recorder);
  // NVTX ranges around all scopes. Once, before the first step, on a GPU.
  void mark_ranges();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tigon
