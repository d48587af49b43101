// The loop around the step: data, checkpoints, evaluation, the log.
#include "tigon/train/run.hpp"

#include <chrono>
#include <cmath>
#include <deque>
#include <fstream>
#include <optional>
#include <system_error>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/train/checkpoints.hpp"
#include "train/check_range.hpp"
#include "train/room.hpp"
#include "train/run_watch.hpp"
#include "train/step_log.hpp"
#include "train/tokenizer_files.hpp"
#include "train/weights_io.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

// Of the data that is trained on, or of that of the evaluation.
Sampler::Options sampler_options(const ModelConfig& model, const TrainConfig& train, const RunOptions& options,
                                 bool eval) {
  Sampler::Options sampler{.seq = train.seq,
                           .vocab = model.vocab,
                           .seed = train.seed + (eval ? 1 : 0),
                           .shuffle = options.shuffle && !eval,
                           .ignored_token = options.ignored_token,
                           .ignore_index = train.ignore_index,
                           .documents_apart = train.documents_apart,
                           .document_end = options.document_end,
                           .bytes = options.bytes};
  // Without a file of its own, evaluation takes the end of the data.
  if (options.eval_data.empty() && options.eval_fraction > 0 && !options.data.empty()) {
    const int64_t tokens = TokenFile(options.data).tokens();
    const auto split = static_cast<int64_t>(static_cast<double>(tokens) * (1.0 - options.eval_fraction));
    (eval ? sampler.first_token : sampler.last_token) = split;
  }
  return sampler;
}

// Not getrusage's, which begins with what the process held that became this one.
int64_t process_peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

class Run {
 public:
  Run(const ModelConfig& model, const TrainConfig& train, const RunOptions& options, RunObserver& observer,
      const std::atomic<bool>& stop, const Rates& rates)
      : options_(options),
        observer_(observer),
        stop_(stop),
        rates_(rates),
        watch_(options, observer, rates),
        data_(options.data, sampler_options(model, train, options, false)),
        eval_(train.evaluates
                  ? std::make_unique<Sampler>(eval_path(options), sampler_options(model, train, options, true))
                  : nullptr),
        trainer_(model, train) {
    flops_ = step_flops(model, train);
    settings_ = {{"model", model_config_to_json(model, train.precision.weight)},
                 {"optimizer (--optimizer)", optimizer_text(train.optimizer)},
                 {"seed", std::to_string(train.seed)},
                 {"batch", std::to_string(train.batch)},
                 {"seq", std::to_string(train.seq)},
                 {"accumulate", std::to_string(train.accumulate)},
                 {"tokens per chunk of the loss (--chunk)", std::to_string(loss_chunk(model, trainer_.config()))},
                 {"windows of the data", std::to_string(data_.windows())},
                 {"data", data_.fingerprint()},
                 {"ignored token (--ignore-token)", std::to_string(options.ignored_token)},
                 {"shuffle", options.shuffle ? "yes" : "no"}};
    if (train.documents_apart)
      settings_["documents (--documents, --document-end)"] = "apart by " + std::to_string(options.document_end);
    if (train.lora.any()) settings_["adapters (--lora)"] = lora_to_string(train.lora);
    if (train.base != BaseFormat::full) settings_["frozen weights (--base)"] = to_string(train.base);
  }

  RunResult run() {
    start();
    StepLog log(options_.log, options_.resume);
    const int64_t last = trainer_.config().steps;
    begin_ = lap_ = Clock::now();
    watch_.start(trainer_, trainer_.step(), last);
    while (trainer_.step() < last && !stop_) {
      if (watch_.begins_with(trainer_.step() + 1)) {
        settle(log);
        watch_.begin();
      }
      saving_first(log, [&] { submit(); });
      while (trainer_.pending() >= trainer_.most_pending()) finish_step(log);
      const int64_t step = trainer_.step();
      if (watch_.ends_with(step)) {
        write_recording(log);
        lap_ = Clock::now();  // it is not the next step's time
      }
      const bool saves = options_.save_every > 0 && step % options_.save_every == 0 && step < last;
      const bool evaluates = eval_ && options_.eval_every > 0 && step % options_.eval_every == 0 && step < last;
      const bool speaks = options_.sample_every > 0 && step % options_.sample_every == 0 && step < last;
      if (!saves && !evaluates && !speaks) continue;
      drain(log);
      if (evaluates) saving_first(log, [&] { evaluate(log); });
      if (speaks) saving_first(log, [&] { speak(log); });
      if (saves) try_save();  // last: what happened before a checkpoint is in the log, whenever the run is killed
      lap_ = Clock::now();    // what happened in between is not the next step's time
    }
    write_recording(log);
    result_.stopped = stop_ && trainer_.step() < last;
    if (eval_ && !result_.stopped) saving_first(log, [&] { evaluate(log); });  // whoever stops a run waits for it
    if (options_.sample_every > 0 && !result_.stopped) saving_first(log, [&] { speak(log); });
    write_results();
    result_.steps = trainer_.step();
    result_.all_steps = last;
    result_.trained = collected_;
    result_.planned_bytes = trainer_.plan().total_bytes();
    result_.used_bytes = trainer_.used_bytes();
    result_.traffic = trainer_.traffic();
    result_.predicted = predict_step(trainer_.model(), trainer_.plan(), rates_);
    if (timed_tokens_ > 0) result_.seconds_per_step = timed_seconds_ / static_cast<double>(collected_ - 1);
    if (timed_tokens_ > 0) result_.tokens_per_second = static_cast<double>(timed_tokens_) / timed_seconds_;
    write_end(log);
    return result_;
  }

 private:
  static fs::path eval_path(const RunOptions& options) {
    return options.eval_data.empty() ? options.data : options.eval_data;
  }
  void start() {
    if (!options_.checkpoints.empty()) {
      if (!options_.resume) make_folder(options_.checkpoints);
      held_.emplace(options_.checkpoints);
      remove_unfinished(options_.checkpoints);  // takes room that the next one may need
    }
    fs::path from;
    if (options_.resume && options_.resume_step >= 0) {
      from = chosen_checkpoint();
    } else if (options_.resume) {
      std::vector<std::string> damaged;
      from = newest_checkpoint(options_.checkpoints, &damaged);
      for (const std::string& text : damaged) observer_.on_message("passed over: " + text);
      if (from.empty()) {
        // A run without --resume would be refused where damaged ones are.
        throw Error(ErrorCode::io,
                    {.where = options_.checkpoints.string(),
                     .what = damaged.empty() ? "there is no checkpoint to resume from"
                                             : "there is no whole checkpoint to resume from: all are damaged",
                     .fix = damaged.empty() ? "Leave --resume out to begin anew."
                                            : "To begin anew, leave --resume out and choose another folder for "
                                              "--checkpoints, or remove this one."});
      }
    } else if (!options_.checkpoints.empty() && !list_checkpoints(options_.checkpoints).empty()) {
      throw Error(ErrorCode::invalid_argument, {.where = options_.checkpoints.string(),
                                                .what = "there are checkpoints of another run in this folder",
                                                .fix = "Add --resume to go on with it, or choose another folder."});
    }
    // What cannot be written is found now, not after the run.
    for (const fs::path& folder : {options_.checkpoints, options_.output}) {
      if (!folder.empty()) make_folder(folder);
    }
    if (!options_.model_folder.empty()) {
      const fs::path config = options_.model_folder / "config.json";
      trainer_.set_config_text(config_text_with_dtype(read_text_file(config, int64_t{1} << 24),
                                                      trainer_.config().precision.weight, config.string()));
    }
    for (const Sampler* sampler : {&data_, eval_.get()}) {
      if (sampler == nullptr) continue;
      sampler->check_tokens();
      sampler->check_labels();
    }
    const bool given = !options_.model_folder.empty() && has_weights(options_.model_folder);
    // Large models take a while.
    if (!from.empty() || given)
      observer_.on_message("loading " + (from.empty() ? options_.model_folder : from).string());
    trainer_.set_base_name(options_.model_folder.string());
    trainer_.set_run_text(options_.config);
    // Where adapters are trained, a checkpoint is of them alone.
    const bool adapters = trainer_.config().lora.any();
    if (from.empty() || adapters) {
      if (given) {
        trainer_.load_weights(options_.model_folder);
      } else {
        if (!options_.model_folder.empty())
          observer_.on_message("random weights: " + options_.model_folder.string() + " has a config.json alone");
        trainer_.initialize();
      }
    }
    if (from.empty() && !options_.adapters.empty()) trainer_.load_adapters(options_.adapters);
    // Adapters mean nothing beside another model.
    if (given && adapters) {
      settings_["numbers of the frozen model (--model)"] =
          weights_fingerprint(TensorFiles::open(options_.model_folder));
    }
    if (!from.empty()) {
      trainer_.restore_checkpoint(from, settings_);
      saved_ = trainer_.step();
      // A later --resume would take them for the newest.
      if (options_.resume_step >= 0) {
        for (const fs::path& path : set_aside_checkpoints(options_.checkpoints, saved_))
          observer_.on_message("set aside: " + path.string());
      }
    }
    check_disk();
    if (!options_.save_gradients.empty()) trainer_.save_next_gradients(options_.save_gradients);
    observer_.on_start(trainer_, data_, trainer_.step());
  }

  // A folder with a config.json alone is a shape. One with weights of any kind is not: they must not be passed over
  // because their format is not read.
  static bool has_weights(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename(), extension = entry.path().extension();
      for (const char* known : {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack"}) {
        if (extension == known) return true;
      }
      if (name.ends_with(".index.json")) return true;
    }
    return false;
  }

  fs::path chosen_checkpoint() const {
    const fs::path chosen = checkpoint_path(options_.checkpoints, options_.resume_step);
    if (fs::exists(chosen)) return chosen;
    std::string there;
    for (const fs::path& path : list_checkpoints(options_.checkpoints))
      there += (there.empty() ? "" : ", ") + path.filename().string();
    throw Error(ErrorCode::invalid_argument, {.where = chosen.string(),
                                              .what = "there is no checkpoint of this step",
                                              .expected = there.empty() ? "none is there" : "one of " + there});
  }

  // Runs last for days, and how much they write is known now.
  void check_disk() const {
    const ParameterList& parameters = trainer_.parameters();
    const int64_t weights = parameters.trained_elements() * size_of(trainer_.config().precision.weight);
    const int64_t state = weights + state_bytes(parameters, trainer_.config());
    const int64_t first = trainer_.step(), last = trainer_.config().steps, every = options_.save_every;
    std::vector<RoomNeed> needs;
    if (!options_.checkpoints.empty() && last > first) {
      const int64_t saves = every > 0 ? (last - 1) / every - first / every + 1 : 1;
      const auto there = static_cast<int64_t>(list_checkpoints(options_.checkpoints).size());
      const int64_t more = std::clamp<int64_t>(options_.keep + 1 - there, 1, saves);
      needs.push_back({.folder = options_.checkpoints, .count = more, .bytes = state, .what = "a checkpoint"});
    }
    if (!options_.output.empty())
      needs.push_back({.folder = options_.output, .count = 1, .bytes = weights, .what = "the weights"});
    check_room(needs);
  }

  // What fails outside the trainer, as data that cannot be read, must not cost what was learnt since the last save.
  template <class Work>
  void saving_first(StepLog& log, const Work& work) {
    try {
      work();
    } catch (const Error&) {
      if (!options_.checkpoints.empty()) rescue(log);
      throw;
    }
  }
  void rescue(StepLog& log) {
    try {
      drain(log);
      if (trainer_.step() > saved_) save();
    } catch (const Error& error) {
      observer_.on_message(std::string("nothing could be saved: ") + error.what());
    }
  }

  // A disk that is full now may have room later: only the last checkpoint has to be written.
  void try_save() {
    try {
      save();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      observer_.on_message(std::string("not saved, the run goes on: ") + error.what());
    }
  }

  // The last checkpoint and the trained model. Where one cannot be written, the other is.
  void write_results() {
    const bool wants_output = !options_.output.empty() && !result_.stopped;
    if (!options_.checkpoints.empty() && trainer_.step() > saved_) {
      try {
        save();
      } catch (const Error&) {
        if (wants_output) write_output();
        throw;
      }
    }
    if (wants_output) write_output();
  }

  void write_output() {
    try {
      trainer_.save_weights(options_.output);
    } catch (const Error& error) {
      const fs::path model = model_elsewhere();
      if (model.empty()) throw;
      throw Error(error.code(),
                  {.where = options_.output.string(),
                   .what = std::string("the trained model cannot be written here (") + error.what() + ")",
                   .fix = "It is in " + model.string() + ": take model.safetensors and config.json from there."});
    }
    if (!options_.tokenizer.empty()) copy_tokenizer(options_.tokenizer, options_.output);
  }

  // A folder with the trained model where --output cannot be written: the last checkpoint, or a new one for temporary
  // files. Empty where there is none.
  fs::path model_elsewhere() const {
    if (!options_.checkpoints.empty() && saved_ == trainer_.step()) {
      const fs::path last = checkpoint_path(options_.checkpoints, saved_);
      if (fs::exists(last)) return last;
    }
    std::error_code failed;
    std::string folder = (fs::temp_directory_path(failed) / "tigon-model-XXXXXX").string();
    if (failed || mkdtemp(folder.data()) == nullptr) return {};
    try {
      trainer_.save_weights(folder);
      return folder;
    } catch (const Error&) {
      fs::remove_all(folder, failed);
      return {};
    }
  }

  void submit() {
    const TrainConfig& train = trainer_.config();
    const int64_t first = trainer_.step() * train.accumulate;
    counted_.push_back(0);
    trainer_.submit_from([&](int64_t micro, TokenBatch& batch) {
      data_.fill((first + micro) * train.batch, train.batch, batch);
      counted_.back() += batch.counted;
    });
  }

  void finish_step(StepLog& log) {
    StepLine line{.report = trainer_.collect(), .planned_bytes = trainer_.plan().total_bytes()};
    line.counted = counted_.front();
    counted_.pop_front();
    const TrainConfig& train = trainer_.config();
    if (data_.windows() > 0) {
      line.epoch =
          static_cast<double>(line.report.step * train.accumulate * train.batch) / static_cast<double>(data_.windows());
    }
    const Clock::time_point now = Clock::now();
    line.seconds = line.report.seconds > 0 ? line.report.seconds : seconds_between(lap_, now);
    lap_ = now;
    line.tokens_per_second = static_cast<double>(line.report.tokens) / line.seconds;
    if (rates_.gemm > 0) line.gemm_share = flops_ / line.seconds / rates_.gemm;
    if (train.memory.homes.any_away()) {
      line.waits = {.copies = line.report.waits.copies / line.seconds,
                    .updates = line.report.waits.updates / line.seconds,
                    .disk = line.report.waits.disk / line.seconds};
      line.shows_waits = true;
      line.shows_disk = train.memory.homes.any_on_disk();
    }
    // The first step of a run also warms up: caches, pages, the GPU's libraries.
    if (collected_++ > 0) {
      timed_tokens_ += line.report.tokens;
      timed_seconds_ += line.seconds;
    } else {
      result_.first_loss = line.report.loss;
    }
    result_.last_loss = line.report.loss;
    const StepReport& r = line.report;
    Json json;
    json.set("step", r.step);
    json.set("loss", r.loss);
    json.set("grad_norm", r.grad_norm);
    json.set("lr", r.lr);
    json.set("tokens", r.tokens);
    json.set("labels", line.counted);
    json.set("seconds", line.seconds);
    json.set("tokens_per_second", line.tokens_per_second);
    if (rates_.gemm > 0) json.set("gemm_share", line.gemm_share);
    if (line.shows_waits) {
      json.set("compute_share", line.compute_share());
      json.set("copies_share", line.waits.copies);
      json.set("updates_share", line.waits.updates);
      if (line.shows_disk) json.set("disk_share", line.waits.disk);
    }
    json.set("planned_bytes", line.planned_bytes);
    json.set("used_bytes", trainer_.used_bytes());
    if (trainer_.config().precision.loss_scale.dynamic) {
      json.set("loss_scale", r.loss_scale);
      json.set("skipped", r.skipped);
    }
    write_line(log, json);
    watch_.on_step(line, trainer_.used_bytes());
    observer_.on_step(line);
    if (!r.finite && !r.skipped) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "step " + std::to_string(r.step),
                   .what = "the gradient is not finite; the weights are spoiled from here on",
                   .fix = "Lower --lr, lengthen --warmup or clip harder, and resume from the last checkpoint, or from "
                          "an earlier one with --resume STEP."});
    }
    if (r.skipped && r.loss_scale <= 1) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "step " + std::to_string(r.step),
                   .what = "the gradient is not finite even with a loss scale of 1, and skipping steps changes nothing",
                   .fix = "Are the weights finite? If they are, use --precision bf16, whose range is larger."});
    }
  }

  void drain(StepLog& log) {
    while (trainer_.pending() > 0) finish_step(log);
  }

  // Nothing is under way any more, updates on the host included.
  void settle(StepLog& log) {
    drain(log);
    trainer_.finish();
  }

  void write_recording(StepLog& log) {
    settle(log);
    watch_.write(trainer_.step());
  }

  void evaluate(StepLog& log) {
    const TrainConfig& train = trainer_.config();
    int64_t batches = options_.eval_batches;
    if (eval_->windows() > 0) batches = std::min(batches, std::max<int64_t>(1, eval_->windows() / train.batch));
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < batches; ++i) {
      TokenBatch batch;
      eval_->fill(i * train.batch, train.batch, batch);
      sum += trainer_.evaluate(batch);
      counted += batch.counted;
    }
    if (counted == 0) observer_.on_message("no label counts in the batches of this evaluation (--eval-batches)");
    result_.eval_loss = sum / static_cast<double>(std::max<int64_t>(1, counted));
    Json json;
    json.set("step", trainer_.step());
    json.set("eval_loss", result_.eval_loss);
    write_line(log, json);
    watch_.on_evaluation(trainer_.step(), result_.eval_loss);
    observer_.on_evaluation(trainer_.step(), result_.eval_loss);
  }

  void speak(StepLog& log) {
    Json json;
    json.set("step", trainer_.step());
    json.set("sample", observer_.speak(trainer_));
    write_line(log, json);
  }

  void write_end(StepLog& log) {
    Json json;
    json.set("end", true);
    json.set("step", result_.steps);
    json.set("planned_bytes", result_.planned_bytes);
    json.set("used_bytes", result_.used_bytes);
    if (trainer_.config().memory.homes.any_away()) {
      json.set("bytes_to_device", result_.traffic.up_bytes);
      json.set("bytes_to_host", result_.traffic.down_bytes);
      json.set("host_update_seconds", result_.traffic.update_seconds);
      json.set("updated_by_host", result_.traffic.updated_by_host);
      json.set("updated_by_device", result_.traffic.updated_by_device);
      json.set("bytes_from_disk", result_.traffic.disk.read);
      json.set("bytes_to_disk", result_.traffic.disk.written);
    }
    if (result_.predicted.seconds > 0) json.set("predicted_step_seconds", result_.predicted.seconds);
    const Device device = trainer_.config().device;
    if (device.kind != DeviceKind::cpu) {
      result_.beyond_plan_bytes = device_bytes_in_use(device) - result_.planned_bytes;
      json.set("beyond_plan_bytes", result_.beyond_plan_bytes);
    }
    result_.process_peak_bytes = process_peak_bytes();
    json.set("process_peak_bytes", result_.process_peak_bytes);
    write_line(log, json);
  }

  void write_line(StepLog& log, const Json& line) {
    if (log.write(line)) return;
    observer_.on_message(options_.log.string() + ": the log cannot be written; the run goes on without it");
  }

  void save() {
    const fs::path path = checkpoint_path(options_.checkpoints, trainer_.step());
    trainer_.save_checkpoint(path, settings_);
    saved_ = trainer_.step();
    prune_checkpoints(options_.checkpoints, options_.keep, saved_);
    observer_.on_checkpoint(path);
  }

  const RunOptions& options_;
  RunObserver& observer_;
  const std::atomic<bool>& stop_;
  Rates rates_;
  double flops_ = 0;
  RunWatch watch_;
  Sampler data_;
  std::unique_ptr<Sampler> eval_;
  std::optional<FolderLock> held_;  // the checkpoints'
  Trainer trainer_;
  std::map<std::string, std::string> settings_;
  RunResult result_;
  Clock::time_point begin_, lap_;
  std::deque<int64_t> counted_;  // labels of the steps under way
  int64_t collected_ = 0, saved_ = 0, timed_tokens_ = 0;
  double timed_seconds_ = 0;
};

}  // namespace

void check_run_options(const RunOptions& options) {
  const auto count = [](const char* name, int64_t value, int64_t least) {
    check_range(name, static_cast<double>(value), static_cast<double>(least), 0x1p40);
  };
  check_range("epochs", options.epochs, 0, 1e6);
  check_range("evaluation's fraction", options.eval_fraction, 0, 0.9);
  count("steps between evaluations", options.eval_every, 0);
  count("steps between texts", options.sample_every, 0);
  count("batches per evaluation", options.eval_batches, 1);
  count("steps between checkpoints", options.save_every, 0);
  count("checkpoints to keep", options.keep, 1);
  count("first step of a trace", options.trace_first, 1);
  count("last step of a trace", options.trace_last, options.trace_first);
  if (options.checkpoints.empty() && (options.resume || options.save_every > 0)) {
    throw Error(ErrorCode::invalid_argument, {.where = options.resume ? "--resume" : "--save-every",
                                              .what = "needs --checkpoints, the folder that they are in"});
  }
  if (options.eval_every > 0 && options.eval_data.empty() && options.eval_fraction == 0) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "--eval-every", .what = "needs --eval-data or --eval-fraction, what to evaluate on"});
  }
}

namespace {

// The steps that take each window so many times; a last step that is not full is a step too.
int64_t steps_of(const ModelConfig& model, const TrainConfig& train, const RunOptions& options) {
  if (options.data.empty()) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "--epochs", .what = "random tokens have no end", .fix = "Give --data, or --steps instead."});
  }
  const Sampler data(options.data, sampler_options(model, train, options, false));
  const double samples = options.epochs * static_cast<double>(data.windows());
  return static_cast<int64_t>(std::ceil(samples / static_cast<double>(train.batch * train.accumulate)));
}

// What is written during the run must not take the place of what it reads, or of anything else.
void check_written_files(const RunOptions& options) {
  const auto refuse = [](const fs::path& path, const char* what) {
    throw Error(ErrorCode::invalid_argument, {.where = path.string(), .what = what, .fix = "Choose another name."});
  };
  std::error_code none;
  for (const fs::path& data : {options.data, options.eval_data}) {
    if (!data.empty() && !options.log.empty() && fs::equivalent(options.log, data, none))
      refuse(options.log, "the log would overwrite the data");
  }
  const fs::path written[] = {options.log, options.trace, options.snapshot};
  for (const fs::path& one : written) {
    for (const fs::path& other : written) {
      if (&one == &other || one.empty() || other.empty()) continue;
      if (fs::absolute(one).lexically_normal() == fs::absolute(other).lexically_normal())
        refuse(one, "two of log, trace and snapshot would be the same file");
    }
  }
  if (!options.save_gradients.empty() && fs::is_regular_file(options.save_gradients, none))
    refuse(options.save_gradients, "the gradients would overwrite a file");
}

// What has its home on the disk goes beside the checkpoints: where there is room for them.
fs::path folder_beside(const fs::path& checkpoints) {
  fs::path folder = fs::absolute(checkpoints);
  while (!fs::is_directory(folder) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

RunResult run_training(const ModelConfig& model, TrainConfig train, const RunOptions& options, RunObserver& observer,
                       const std::atomic<bool>& stop, const Rates& rates) {
  check_run_options(options);
  check_written_files(options);
  if (options.nvtx && train.device.kind == DeviceKind::cpu) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "--nvtx",
                 .what = "NVTX ranges are for NVIDIA's tools, and come with the CUDA backend",
                 .fix = "Add --device cuda, or take --trace."});
  }
  if (options.document_end >= 0 && !train.documents_apart) {
    throw Error(ErrorCode::invalid_argument, {.where = "--document-end", .what = "needs --documents apart"});
  }
  if (options.epochs > 0) {
    check_train_config(train, model);
    train.steps = steps_of(model, train, options);
  }
  train.evaluates = !options.eval_data.empty() || options.eval_fraction > 0;
  fs::path& folder = train.memory.disk.folder;
  if (folder.empty() && !options.checkpoints.empty()) folder = folder_beside(options.checkpoints);
  return Run(model, train, options, observer, stop, rates).run();
}

}  // namespace tigon
