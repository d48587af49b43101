#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>

#include "ceilings.hpp"
#include "commands.hpp"
#include "model_flags.hpp"
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

// To standard output. Where that is gone, with a closed terminal, the run goes on; main() finds out at the end.
template <class... Args>
void show(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
  (void)std::fflush(stdout);
}

// One line per step: rewritten in place on a terminal, with a bar; plain lines elsewhere.
class Screen final : public RunObserver {
 public:
  Screen(int64_t steps, int64_t every) : steps_(steps), every_(every), terminal_(isatty(STDOUT_FILENO) == 1) {}
  // Whatever is said next, an error above all, begins a line of its own.
  ~Screen() override {
    if (within_line_) (void)std::fputs("\n", stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void on_start(const Trainer& trainer, int64_t first_step) override {
    const TrainConfig& train = trainer.config();
    show("{:.2f} M parameters, {} × {} tokens{}, {}, recompute {}, fused {}, loss by {} tokens\n\n{}\n",
         static_cast<double>(trainer.parameters().elements()) * 1e-6, train.batch, train.seq,
         train.accumulate > 1 ? fmt::format(" × {}", train.accumulate) : "", train.precision.name,
         recompute_to_string(train.memory.recompute), fused_to_string(train.fused), loss_chunk(trainer.model(), train),
         plan_table(trainer.plan()));
    if (first_step > 0) show("resumed after step {}\n", first_step);
  }

  void on_step(const StepLine& line) override {
    const StepReport& r = line.report;
    std::string text = fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s", r.step, steps_,
                                   r.loss, r.grad_norm, r.lr, line.tokens_per_second);
    if (line.gemm_share > 0) text += fmt::format("  {:.0f}% of GEMM", 100 * line.gemm_share);
    text += fmt::format("  {}", human_bytes(line.planned_bytes));
    if (r.skipped) text += fmt::format("  skipped, overflow at scale {:.0f}", r.loss_scale);
    const bool keeps = r.step == steps_ || r.step % every_ == 0;
    if (terminal_) {
      // Without wrapping: what does not fit on the line is cut, or \r would not lead back to its beginning.
      show("\r\033[K\033[?7l{} {}\033[?7h", bar(r.step), text);
      within_line_ = !(keeps && every_ > 1);
      if (!within_line_) show("\n");
    } else if (keeps) {
      show("{}\n", text);
    }
  }
  void on_evaluation(int64_t step, double loss) override {
    print_line(fmt::format("step {}  evaluation loss {:.4f}", step, loss));
  }
  void on_checkpoint(const std::filesystem::path& path) override { print_line("saved " + path.string()); }
  void on_message(const std::string& text) override { print_line(text); }

 private:
  void print_line(const std::string& text) {
    show("{}{}\n", terminal_ ? "\r\033[K" : "", text);
    within_line_ = false;
  }
  std::string bar(int64_t step) const {
    constexpr int64_t kWidth = 20;
    const int64_t full = steps_ > 0 ? kWidth * step / steps_ : kWidth;
    std::string text;
    for (int64_t i = 0; i < kWidth; ++i) text += i < full ? "█" : "░";
    return text;
  }

  int64_t steps_, every_;
  bool terminal_, within_line_ = false;
};

// Host memory: on a CPU the plan, and what the program and its libraries hold beside it.
int64_t peak_resident_bytes() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
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
  const double gemm_rate = flags.ceiling ? measured_gemm_rate(train) : 0;

  catch_signals();
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file larger than the shell allows is then an error, as a full disk is
  const RunResult result = [&] {
    Screen screen(train.steps, flags.print_every);
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
    show("\nNothing to train: {} of {} steps are done", result.steps, train.steps);
  }
  if (options.eval_fraction > 0 || !options.eval_data.empty()) show(", {:.4f} in evaluation", result.eval_loss);
  if (result.tokens_per_second > 0) show(", {:.0f} tokens/s", result.tokens_per_second);
  show("\n");
  show("{} planned, {} used; the process held {} at most\n", human_bytes(result.planned_bytes),
       human_bytes(result.used_bytes), human_bytes(peak_resident_bytes()));
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
  const auto flags = std::make_shared<Flags>();
  flags->model.add_to(*train);
  train->add_option("--data", flags->run.data, "Text (a token per byte) or a token file; without it: random tokens")
      ->check(CLI::ExistingFile);
  train->add_option("--steps", flags->train.steps, "Steps in all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  train->add_option("--lr", flags->train.optimizer.lr, "Peak learning rate")->capture_default_str();
  train->add_option("--schedule", flags->schedule, "How it falls after the warm-up")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}))
      ->capture_default_str();
  train->add_option("--warmup", flags->train.schedule.warmup, "Steps over which it rises")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  train->add_option("--lr-floor", flags->train.schedule.floor, "Where it ends, as a share of the peak")
      ->capture_default_str();
  train->add_option("--weight-decay", flags->train.optimizer.weight_decay, "Of matrices; norms and biases have none")
      ->capture_default_str();
  train->add_option("--beta1", flags->train.optimizer.beta1, "AdamW's")->capture_default_str();
  train->add_option("--beta2", flags->train.optimizer.beta2, "AdamW's")->capture_default_str();
  train->add_option("--eps", flags->train.optimizer.eps, "AdamW's")->capture_default_str();
  train->add_option("--seed", flags->train.seed, "Of weights, order of the data and stochastic rounding")
      ->check(CLI::Range(uint64_t{0}, UINT64_MAX - 1))  // what is too large reads as UINT64_MAX
      ->capture_default_str();
  train->add_option("--ignore-token", flags->run.ignored_token,
                    "Labels equal to this token of the vocabulary do not count (padding); negative: all count");
  train->add_flag("--sequential", flags->sequential, "Take the data in order, without shuffling");
  CLI::Option* eval_data =
      train->add_option("--eval-data", flags->run.eval_data, "Evaluate on this file")->check(CLI::ExistingFile);
  train
      ->add_option("--eval-fraction", flags->run.eval_fraction,
                   "Or on this share at the end of the data, which is then not trained on")
      ->check(CLI::Range(0.0, 0.9))
      ->excludes(eval_data);
  train->add_option("--eval-every", flags->run.eval_every, "Steps between evaluations; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  train->add_option("--eval-batches", flags->run.eval_batches, "Batches per evaluation")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  train->add_option("--checkpoints", flags->run.checkpoints,
                    "Folder for checkpoints: each a whole state of the run, and a model that transformers loads");
  train->add_option("--save-every", flags->run.save_every, "Steps between checkpoints; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  train->add_option("--keep", flags->run.keep, "How many checkpoints stay")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  train
      ->add_option_function<std::string>(
          "--resume",
          [flags](const std::string& step) {
            flags->run.resume = true;
            flags->run.resume_step = chosen_step(step);
          },
          "Go on from the newest checkpoint, bitwise as if the run had not stopped; or from that of a step")
      ->expected(0, 1)
      ->type_name("[STEP]")
      ->default_str(kNewest);  // what stands there without a value
  train->add_option("--output", flags->run.output, "Folder for the trained weights, as transformers loads them");
  train->add_option("--log", flags->run.log, "A line of JSON per step into this file");
  train->add_option("--print-every", flags->print_every, "Steps between printed lines")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  train->add_flag("--gemm-ceiling,!--no-gemm-ceiling", flags->ceiling,
                  "Measure the machine's GEMM rate first and show each step's share of it (the default)");
  train->add_option("--loss-scale-power", flags->loss_scale_power, "fp16: the loss scale begins at 2 to this power")
      ->check(CLI::Range(0, 40))
      ->capture_default_str();
  train->add_option("--loss-scale-window", flags->loss_scale_window, "fp16: it doubles after so many good steps")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  train->add_option("--loss-scale-hysteresis", flags->loss_scale_hysteresis, "fp16: it halves after so many overflows")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  train->add_option("--save-gradients", flags->run.save_gradients,
                    "Write the first step's gradients, before clipping, as safetensors");
  train->footer(
      "\nA token file is, little-endian: the 8 bytes TIGONTOK, u32 version 1, u32 bytes per token (2 or 4), u64 number "
      "of "
      "tokens,\nu64 vocabulary size, then the tokens.\n\nCtrl-C finishes the step, saves (with --checkpoints), and "
      "says how to go on. The exit code is then 130 (SIGTERM: 143).\n\n"
      "Examples:\n"
      "  tigon train --data data/austen.txt --steps 200 --lr 1e-3 --eval-fraction 0.05\n"
      "  tigon train --model ./Llama-3.2-1B --data tokens.bin --device cuda --precision bf16-sr --recompute block \\\n"
      "      --seq 1024 --checkpoints run1 --save-every 500 --output trained\n"
      "  tigon train --model llama-3.2-1b --device cuda --precision bf16-sr --seq 1024 --steps 20   # random weights "
      "and tokens");
  train->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace tigon::app
