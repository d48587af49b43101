#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "commands.hpp"
#include "config_file.hpp"
#include "memory_cap.hpp"
#include "rates.hpp"
#include "screen.hpp"
#include "signals.hpp"
#include "tigon/core/error.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/train/run.hpp"
#include "tokenizing.hpp"
#include "train_flags.hpp"

namespace tigon::app {

namespace {

// A trained model in the place of another must not come from tokens that nobody meant.
void refuse_results_of_random_tokens(const RunOptions& options, int64_t steps) {
  if (steps == 0 || !options.data.empty() || (options.output.empty() && options.checkpoints.empty())) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = options.output.empty() ? "--checkpoints" : "--output",
               .what = "without --data the tokens are random, and what is learnt from them is not worth keeping",
               .fix = "Give --data FILE, or leave --output and --checkpoints out to measure time and memory."});
}

// What was measured above held memory of its own, which is not the run's. Where the system cannot forget it, it counts.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

MemoryCap capped(const ModelConfig& model, const TrainFlags& flags) {
  const TrainConfig& train = flags.model.train;
  int64_t host = 0;
  if (flags.cap_bytes > 0) {
    const SpaceBytes bytes = plan_memory(model, ParameterList(model, train.lora), train).bytes();
    host = bytes.pinned + bytes.host;
    // Threads and libraries take no memory of the device. What has no room by its plan gets none for them either, so
    // that the system is the judge.
    constexpr int64_t kLibraries = int64_t{64} << 20, kThread = int64_t{16} << 20;
    if (bytes.device <= flags.cap_bytes) host += kLibraries + kThread * std::thread::hardware_concurrency();
  }
  return {train.device, flags.cap_bytes, host};
}

// 0, or what the signal that stopped the run makes of it.
int run(const TrainFlags& flags, const std::string& config) {
  if (flags.print_config) {
    show("{}", config);
    return 0;
  }
  const ModelConfig model = flags.model.model_config();
  TrainConfig train = flags.model.train;
  RunOptions options = flags.run_options();
  std::optional<Speaker> speaker;
  if (options.sample_every > 0) {
    speaker.emplace(model, options.tokenizer, flags.prompt, flags.sample_tokens);
    train.speaks = speaker->most_tokens();
  }
  options.config = config;
  check_run_options(options);
  refuse_results_of_random_tokens(options, train.steps);
  for (std::filesystem::path* data : {&options.data, &options.eval_data}) {
    if (options.bytes) continue;
    TokenizeOptions words = flags.words;
    words.tokenizer = options.tokenizer;
    if (const int code = tokenize_data(*data, model, words); code != 0) return code;
  }
  const Rates rates = flags.ceiling ? RateBook().of(train, !options.record.empty()) : Rates{};
  const MemoryCap cap = capped(model, flags);
  forget_peak();

  const CatchSignals signals;
  const RunResult result = [&] {
    Screen screen(flags.print_every, speaker ? &*speaker : nullptr);
    return run_training(model, train, options, screen, signals.stop(), rates);
  }();

  if (result.stopped) {
    show("\nStopped after step {}. ", result.steps);
    if (options.checkpoints.empty()) {
      show("Nothing was saved: give --checkpoints FOLDER to keep what a run has learnt.\n");
    } else if (result.steps == 0) {
      show("There is nothing to save yet: run the same command again.\n");
    } else {
      show("To go on, run the same command with --resume.\n");
    }
    return signals.exit_code();  // a script must not take this for the end of the training
  }
  if (result.trained > 0) {
    show("\n{} steps, loss {:.4f} at first and {:.4f} at last", result.steps, result.first_loss, result.last_loss);
  } else {
    show("\nNothing to train: {} of {} steps are done", result.steps, result.all_steps);
  }
  if (options.eval_fraction > 0 || !options.eval_data.empty()) show(", {:.4f} in evaluation", result.eval_loss);
  if (result.tokens_per_second > 0) show(", {:.0f} tokens/s", result.tokens_per_second);
  show("\n");
  show("{} planned, {} used", human_bytes(result.planned_bytes), human_bytes(result.used_bytes));
  if (const int64_t held = result.process_peak_bytes; held > 0)
    show("; the process held {} at most", human_bytes(held));
  show("\n");
  if (const Traffic& t = result.traffic; result.trained > 0 && t.up_bytes + t.down_bytes > 0) {
    show("a step moved {} to the device and {} back", human_bytes(t.up_bytes / result.trained),
         human_bytes(t.down_bytes / result.trained));
    show("\n");
    if (const int64_t updated = t.updated_by_host + t.updated_by_device; updated > 0) {
      const double host = static_cast<double>(t.updated_by_host) / static_cast<double>(updated);
      show("update: host {:.0f} %, device {:.0f} %", 100 * host, 100 * (1 - host));
      if (t.updated_by_host > 0) {
        show("; {:.0f} ms a step of the host", 1e3 * t.update_seconds / static_cast<double>(result.trained));
      }
      show("\n");
    }
  }
  if (const Prediction& p = result.predicted;
      p.seconds > 0 && result.seconds_per_step > 0 && train.memory.homes.any_away()) {
    show("by measured rates at least {:.3g} s a step ({}); it took {:.3g}\n", p.seconds, parts_text(p),
         result.seconds_per_step);
  }
  if (const DiskTraffic& t = result.traffic.disk; train.memory.homes.any_on_disk()) {
    show("in all the disk wrote {} and read {}\n", human_bytes(t.written), human_bytes(t.read));
  }
  if (train.device.kind != DeviceKind::cpu) {
    show("beyond the plan the GPU holds {}: its context, libraries, other processes\n",
         human_bytes(result.beyond_plan_bytes));
  }
  if (!options.output.empty()) show("weights in {}\n", options.output.string());
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* train = app.add_subcommand("train", "Train a model of the Llama family");
  const auto flags = std::make_shared<TrainFlags>();
  flags->add_to(*train);
  train->footer(
      "\nCtrl-C finishes the step, saves (with --checkpoints), and says how to go on. The exit code is then 130 "
      "(SIGTERM: 143).\ntigon help data says what --data may be, and how to tokenize a text.\n\n"
      "Examples:\n"
      "  tigon train --data data/austen.txt --steps 200 --lr 1e-3 --eval-fraction 0.05\n"
      "  tigon train --model ./Llama-3.2-1B --data tokens.bin --device cuda --precision bf16-sr --recompute block \\\n"
      "      --seq 1024 --epochs 3 --checkpoints run1 --save-every 500 --output trained\n"
      "  tigon train --model llama-3.2-1b --device cuda --precision bf16-sr --seq 1024 --steps 20   # random weights "
      "and tokens\n"
      "  tigon train --data data/austen.txt --steps 500 --lr 1e-3 --sample-every 100 --prompt \"She was\"\n"
      "  tigon train --data data/austen.txt --steps 200 --print-config > run.toml && tigon train --config run.toml "
      "--lr "
      "3e-4");
  train->callback([flags, train, &exit_code] { exit_code = run(*flags, config_text(*train)); });
}

}  // namespace tigon::app
