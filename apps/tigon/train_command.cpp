#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>

#include "ceilings.hpp"
#include "commands.hpp"
#include "model_flags.hpp"
#include "screen.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/train/run.hpp"

namespace tigon::app {

namespace {

struct Flags {
  ModelFlags model;
  RunOptions run;
  std::string schedule = "cosine";
  TrainConfig train;
  double loss_scale_power = 16;
  int64_t loss_scale_window = 1000, loss_scale_hysteresis = 1;
  int64_t print_every = 1;
  bool ceiling = true, sequential = false;
};

std::atomic<bool> stop_requested{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler sets them");

void request_stop(int signal) {
  int none = 0;
  (void)first_signal.compare_exchange_strong(none, signal);
  stop_requested = true;
}

void on_signal(int caught) {
  request_stop(caught);
  for (const int signal : {SIGINT, SIGTERM}) (void)std::signal(signal, SIG_DFL);  // a second Ctrl-C ends it at once
  (void)std::signal(SIGHUP, SIG_IGN);  // of a terminal that is closed, which comes from the shell too
}

// Whoever read the output is gone: head, or a tee that Ctrl-C ended before the step was finished.
void on_broken_pipe(int signal) { request_stop(signal); }

void catch_signals() {
  for (const int signal : {SIGINT, SIGTERM}) (void)std::signal(signal, on_signal);
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) (void)std::signal(SIGHUP, SIG_IGN);  // nohup
  if (std::signal(SIGPIPE, on_broken_pipe) == SIG_IGN) (void)std::signal(SIGPIPE, SIG_IGN);
}

// Host memory: on a CPU the plan, and what the program and its libraries hold beside it. Not getrusage's, which begins
// with what the process held that became this one. 0: not known.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

// Why a file cannot be read; empty where it can.
std::string readable(const std::string& path) {
  return access(path.c_str(), R_OK) == 0 ? std::string() : path + ": " + std::strerror(errno);
}

// A trained model in the place of another must not come from tokens that nobody meant.
void refuse_results_of_random_tokens(const RunOptions& options, int64_t steps) {
  if (steps == 0 || !options.data.empty() || (options.output.empty() && options.checkpoints.empty())) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = options.output.empty() ? "--checkpoints" : "--output",
               .what = "without --data the tokens are random, and what is learnt from them is not worth keeping",
               .fix = "Give --data FILE, or leave --output and --checkpoints out to measure time and memory."});
}

// What a step's speed is compared with; 0 where it cannot be measured.
double measured_gemm_rate(const TrainConfig& train) try {
  if (train.device.kind == DeviceKind::cpu) {
    HeapArena heap;
    return bench::measure_gemm({.threads = train.threads, .memory = &heap}, train.precision.weight, true);
  }
  DeviceArena arena(train.device);
  const DeviceStream stream(train.device);
  return bench::measure_gemm({.device = train.device, .stream = stream.get(), .memory = &arena}, DType::bf16, true);
} catch (const Error& error) {
  if (error.code() != ErrorCode::out_of_memory) throw;
  return 0;
}

constexpr const char* kNewest = "newest";

// The step that --resume names; negative: the newest.
int64_t chosen_step(const std::string& text) {
  if (text == kNewest) return -1;
  if (!text.empty() && text.size() <= 13 && text.find_first_not_of("0123456789") == std::string::npos)
    return std::stoll(text);
  throw Error(ErrorCode::invalid_argument, {.where = "--resume",
                                            .what = "this is not a step",
                                            .expected = "a whole number, or nothing for the newest checkpoint",
                                            .got = "'" + text + "'"});
}

// 0, or what the signal that stopped the run makes of it.
int run(Flags& flags) {
  const ModelConfig model = flags.model.model_config();
  TrainConfig train = flags.model.train_config();
  train.steps = flags.train.steps;
  train.seed = flags.train.seed;
  train.optimizer = flags.train.optimizer;
  train.schedule = flags.train.schedule;
  train.schedule.decay = decay_from_string(flags.schedule);
  if (train.precision.loss_scale.dynamic) {
    train.precision.loss_scale = {.dynamic = true,
                                  .initial = std::exp2(flags.loss_scale_power),
                                  .window = flags.loss_scale_window,
                                  .hysteresis = flags.loss_scale_hysteresis};
  }
  RunOptions options = flags.run;
  options.model_folder = flags.model.folder();
  options.shuffle = !flags.sequential;
  check_run_options(options);
  refuse_results_of_random_tokens(options, train.steps);
  const double gemm_rate = flags.ceiling ? measured_gemm_rate(train) : 0;

  catch_signals();
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file larger than the shell allows is then an error, as a full disk is
  const RunResult result = [&] {
    Screen screen(flags.print_every);
    return run_training(model, train, options, screen, stop_requested, gemm_rate);
  }();
  for (const int signal : {SIGINT, SIGTERM}) (void)std::signal(signal, SIG_DFL);

  if (result.stopped) {
    show("\nStopped after step {}. ", result.steps);
    if (options.checkpoints.empty()) {
      show("Nothing was saved: give --checkpoints FOLDER to keep what a run has learnt.\n");
    } else if (result.steps == 0) {
      show("There is nothing to save yet: run the same command again.\n");
    } else {
      show("To go on, run the same command with --resume.\n");
    }
    return 128 + first_signal;  // a script must not take this for the end of the training
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
  if (const int64_t held = peak_resident_bytes(); held > 0) show("; the process held {} at most", human_bytes(held));
  show("\n");
  if (train.device.kind != DeviceKind::cpu) {
    show("beyond the plan the GPU holds {}: its context, libraries, other processes\n",
         human_bytes(result.beyond_plan_bytes));
  }
  if (!options.output.empty()) show("weights in {}\n", options.output.string());
  return 0;
}

}  // namespace

namespace {

constexpr int64_t kMost = int64_t{1} << 40;

void add_data_flags(CLI::App& train, Flags& flags) {
  train.option_defaults()->group("Data");
  train
      .add_option("--data", flags.run.data,
                  "Text, for a model whose tokens are bytes, or a token file (tigon help data). Without it: random "
                  "tokens, for time and memory")
      ->type_name("FILE")
      ->check(readable);
  train.add_flag("--bytes", flags.run.bytes, "Take a file's bytes as tokens, whatever the file and the vocabulary are");
  train
      .add_option("--ignore-token", flags.run.ignored_token,
                  "Labels equal to this token of the vocabulary do not count (padding); negative: all count")
      ->type_name("TOKEN");
  train.add_flag("--sequential", flags.sequential, "Take the data in order, without shuffling");
  CLI::Option* eval_data =
      train.add_option("--eval-data", flags.run.eval_data, "Evaluate on this file")->type_name("FILE")->check(readable);
  train
      .add_option("--eval-fraction", flags.run.eval_fraction,
                  "Or on this share at the end of the data, which is then not trained on")
      ->check(CLI::Range(0.0, 0.9))
      ->excludes(eval_data);
  train.add_option("--eval-every", flags.run.eval_every, "Steps between evaluations; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  train.add_option("--eval-batches", flags.run.eval_batches, "Batches per evaluation")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void add_optimizer_flags(CLI::App& train, Flags& flags) {
  train.option_defaults()->group("Training");
  CLI::Option* steps = train.add_option("--steps", flags.train.steps, "Steps in all")
                           ->check(CLI::Range(int64_t{0}, kMost))
                           ->capture_default_str();
  train.add_option("--epochs", flags.run.epochs, "Or: how often to take the data")
      ->check(CLI::Range(1e-6, 1e6))
      ->excludes(steps);
  train.add_option("--lr", flags.train.optimizer.lr, "Peak learning rate")->capture_default_str();
  train.add_option("--schedule", flags.schedule, "How it falls after the warm-up")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}))
      ->capture_default_str();
  train.add_option("--warmup", flags.train.schedule.warmup, "Steps over which it rises")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  train.add_option("--lr-floor", flags.train.schedule.floor, "Where it ends, as a share of the peak")
      ->capture_default_str();
  train.add_option("--weight-decay", flags.train.optimizer.weight_decay, "Of matrices; norms and biases have none")
      ->capture_default_str();
  train.add_option("--beta1", flags.train.optimizer.beta1, "AdamW's")->capture_default_str();
  train.add_option("--beta2", flags.train.optimizer.beta2, "AdamW's")->capture_default_str();
  train.add_option("--eps", flags.train.optimizer.eps, "AdamW's")->capture_default_str();
  train.add_option("--seed", flags.train.seed, "Of weights, order of the data and stochastic rounding")
      ->check(CLI::Range(uint64_t{0}, UINT64_MAX - 1))  // what is too large reads as UINT64_MAX
      ->capture_default_str();
  train.add_option("--loss-scale-power", flags.loss_scale_power, "fp16: the loss scale begins at 2 to this power")
      ->check(CLI::Range(0, 40))
      ->capture_default_str();
  train.add_option("--loss-scale-window", flags.loss_scale_window, "fp16: it doubles after so many good steps")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  train.add_option("--loss-scale-hysteresis", flags.loss_scale_hysteresis, "fp16: it halves after so many overflows")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
}

void add_result_flags(CLI::App& train, Flags& flags) {
  train.option_defaults()->group("Results");
  train.add_option("--output", flags.run.output, "For the trained weights, as transformers loads them")
      ->type_name("FOLDER");
  train
      .add_option("--checkpoints", flags.run.checkpoints,
                  "For checkpoints: each a whole state of the run, and a model that transformers loads")
      ->type_name("FOLDER");
  train.add_option("--save-every", flags.run.save_every, "Steps between checkpoints; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  train.add_option("--keep", flags.run.keep, "How many checkpoints stay")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  train
      .add_option_function<std::string>(
          "--resume",
          [&flags](const std::string& step) {
            flags.run.resume = true;
            flags.run.resume_step = chosen_step(step);
          },
          "Go on from the newest checkpoint, bitwise as if the run had not stopped; or from that of a step")
      ->expected(0, 1)
      ->type_name("[STEP]")
      ->default_str(kNewest);  // what stands there without a value
  train.add_option("--log", flags.run.log, "A line of JSON per step into this file")->type_name("FILE");
  train
      .add_option("--save-gradients", flags.run.save_gradients,
                  "Write the first step's gradients, before clipping, as safetensors, into a new file")
      ->type_name("FILE");
  train.add_option("--print-every", flags.print_every, "Steps between printed lines")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->capture_default_str();
  train.add_flag("--gemm-ceiling,!--no-gemm-ceiling", flags.ceiling,
                 "Measure the machine's GEMM rate first and show each step's share of it (the default)");
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* train = app.add_subcommand("train", "Train a model of the Llama family");
  const auto flags = std::make_shared<Flags>();
  flags->model.add_to(*train);
  add_data_flags(*train, *flags);
  add_optimizer_flags(*train, *flags);
  add_result_flags(*train, *flags);
  train->footer(
      "\nCtrl-C finishes the step, saves (with --checkpoints), and says how to go on. The exit code is then 130 "
      "(SIGTERM: 143).\ntigon help data says what --data may be, and how to tokenize a text.\n\n"
      "Examples:\n"
      "  tigon train --data data/austen.txt --steps 200 --lr 1e-3 --eval-fraction 0.05\n"
      "  tigon train --model ./Llama-3.2-1B --data tokens.bin --device cuda --precision bf16-sr --recompute block \\\n"
      "      --seq 1024 --epochs 3 --checkpoints run1 --save-every 500 --output trained\n"
      "  tigon train --model llama-3.2-1b --device cuda --precision bf16-sr --seq 1024 --steps 20   # random weights "
      "and tokens");
  train->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace tigon::app
