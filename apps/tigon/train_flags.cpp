#include "train_flags.hpp"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "tigon/core/error.hpp"
#include "tigon/memory/sizes.hpp"
#include "tokenizing.hpp"

namespace tigon::app {

namespace {

constexpr int64_t kMost = int64_t{1} << 40;

// Why a file cannot be read; empty where it can.
std::string readable(const std::string& path) {
  return access(path.c_str(), R_OK) == 0 ? std::string() : path + ": " + std::strerror(errno);
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

// "3-5" or "3".
std::pair<int64_t, int64_t> chosen_steps(const std::string& text) {
  const size_t dash = text.find('-');
  const auto number = [&](const std::string& part) {
    const bool good = !part.empty() && part.size() <= 12 && part.find_first_not_of("0123456789") == std::string::npos;
    const int64_t step = good ? std::stoll(part) : 0;
    if (step > 0) return step;
    throw Error(ErrorCode::invalid_argument, {.where = "--trace-steps",
                                              .what = "these are no steps",
                                              .expected = "the first and the last, as 2-4, or one, counted from 1",
                                              .got = "'" + text + "'"});
  };
  const int64_t first = number(text.substr(0, dash));
  return {first, dash == std::string::npos ? first : number(text.substr(dash + 1))};
}

}  // namespace

void TrainFlags::add_to(CLI::App& command) {
  model.add_to(command);
  add_data(command);
  add_training(command);
  add_results(command);
}

void TrainFlags::add_data(CLI::App& command) {
  command.option_defaults()->group("Data");
  command
      .add_option("--data", run_.data,
                  "Text or JSON lines, which the model's tokenizer.json makes tokens of, or a token file (tigon help "
                  "data). Without it: random tokens, for time and memory")
      ->type_name("FILE")
      ->check(readable);
  add_tokenizer(command, words.tokenizer,
                "A folder with the tokenizer.json for text and JSON lines; without it the model's. tigon tokenize "
                "does more");
  add_chat_options(command, words);
  command.add_flag("--bytes", run_.bytes, "Take a file's bytes as tokens, whatever the file and the vocabulary are");
  command
      .add_option("--ignore-token", run_.ignored_token,
                  "Labels equal to this token of the vocabulary do not count (padding); negative: all count")
      ->type_name("TOKEN");
  add_word(
      command, "--documents",
      "apart: a token sees its own document alone, and none is foretold from the one before (on the CPU). joined: a "
      "row is one text",
      "joined", [this](const std::string& text) { model.train.documents_apart = text == "apart"; })
      ->check(CLI::IsMember({"apart", "joined"}));
  command
      .add_option("--document-end", run_.document_end,
                  "For --documents apart: the token that ends each, where the file does not know its documents")
      ->type_name("TOKEN");
  command.add_flag("!--sequential", run_.shuffle, "Take the data in order, without shuffling");
  CLI::Option* eval_data =
      command.add_option("--eval-data", run_.eval_data, "Evaluate on this file")->type_name("FILE")->check(readable);
  command
      .add_option("--eval-fraction", run_.eval_fraction,
                  "Or on this share at the end of the data, which is then not trained on")
      ->check(CLI::Range(0.0, 0.9))
      ->excludes(eval_data);
  command.add_option("--eval-every", run_.eval_every, "Steps between evaluations; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command.add_option("--eval-batches", run_.eval_batches, "Batches per evaluation")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void TrainFlags::add_training(CLI::App& command) {
  TrainConfig& train = model.train;
  command.option_defaults()->group("Training");
  CLI::Option* steps = command.add_option("--steps", train.steps, "Steps in all")
                           ->check(CLI::Range(int64_t{0}, kMost))
                           ->capture_default_str();
  command.add_option("--epochs", run_.epochs, "Or: how often to take the data")
      ->check(CLI::Range(1e-6, 1e6))
      ->excludes(steps);
  command.add_option("--lr", train.optimizer.lr, "Peak learning rate")->capture_default_str();
  add_word(command, "--schedule", "How it falls after the warm-up", "cosine", [&train](const std::string& text) {
    train.schedule.decay = decay_from_string(text);
  })->check(CLI::IsMember({"cosine", "linear", "constant"}));
  command.add_option("--warmup", train.schedule.warmup, "Steps over which it rises")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command.add_option("--lr-floor", train.schedule.floor, "Where it ends, as a share of the peak")
      ->capture_default_str();
  command.add_option("--weight-decay", train.optimizer.weight_decay, "Of matrices; norms and biases have none")
      ->capture_default_str();
  command.add_option("--beta1", train.optimizer.beta1, "AdamW's")->capture_default_str();
  command.add_option("--beta2", train.optimizer.beta2, "AdamW's")->capture_default_str();
  command.add_option("--eps", train.optimizer.eps, "AdamW's")->capture_default_str();
  command.add_option("--seed", train.seed, "Of weights, order of the data and stochastic rounding")
      ->check(CLI::Range(uint64_t{0}, UINT64_MAX - 1))  // what is too large reads as UINT64_MAX
      ->capture_default_str();
  // After --precision, which sets the rule that these change. Without a dynamic scale they say nothing.
  const auto loss_scale = [&](const char* name, const char* help, const char* shown, auto change) {
    return add_word(command, name, help, shown, [&train, change](const std::string& text) {
      if (train.precision.loss_scale.dynamic) change(train.precision.loss_scale, std::stoll(text));
    });
  };
  loss_scale("--loss-scale-power", "fp16: the loss scale begins at 2 to this power", "16",
             [](LossScaleRule& rule, int64_t power) { rule.initial = std::exp2(power); })
      ->check(CLI::Range(0, 40))
      ->type_name("N");
  loss_scale("--loss-scale-window", "fp16: it doubles after so many good steps", "1000",
             [](LossScaleRule& rule, int64_t steps) { rule.window = steps; })
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  loss_scale("--loss-scale-hysteresis", "fp16: it halves after so many overflows", "1",
             [](LossScaleRule& rule, int64_t steps) { rule.hysteresis = steps; })
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
}

void TrainFlags::add_results(CLI::App& command) {
  command.option_defaults()->group("Results");
  command.add_option("--output", run_.output, "For the trained weights, as transformers loads them")
      ->type_name("FOLDER");
  command
      .add_option("--checkpoints", run_.checkpoints,
                  "For checkpoints: each a whole state of the run, and a model that transformers loads")
      ->type_name("FOLDER");
  command.add_option("--save-every", run_.save_every, "Steps between checkpoints; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command.add_option("--keep", run_.keep, "How many checkpoints stay")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--resume",
          [this](const std::string& step) {
            run_.resume = true;
            run_.resume_step = chosen_step(step);
          },
          "Go on from the newest checkpoint, bitwise as if the run had not stopped; or from that of a step")
      ->expected(0, 1)
      ->type_name("[STEP]")
      ->default_str(kNewest);  // what stands there without a value
  CLI::Option* samples = command
                             .add_option("--sample-every", run_.sample_every,
                                         "Steps between texts that the model goes on with, to see it learn; 0: none")
                             ->check(CLI::Range(int64_t{0}, kMost))
                             ->capture_default_str();
  command.add_option("--prompt", prompt, "How these texts begin; without it with a new line")
      ->type_name("TEXT")
      ->needs(samples);
  command.add_option("--sample-tokens", sample_tokens, "Tokens of each behind the prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--log", run_.log, "A line of JSON per step into this file")->type_name("FILE");
  command
      .add_option("--save-gradients", run_.save_gradients,
                  "Write the first step's gradients, before clipping, as safetensors, into a new file")
      ->type_name("FILE");
  command
      .add_option(
          "--trace", run_.trace,
          "When what ran in a few steps, for Perfetto, TensorBoard and Holistic Trace Analysis; compressed where "
          "the name ends in .gz")
      ->type_name("FILE.pt.trace.json");
  command
      .add_option("--snapshot", run_.snapshot,
                  "The device's memory over a step, as a pickle that pytorch.org/memory_viz opens")
      ->type_name("FILE.pickle");
  command
      .add_option(
          "--record", run_.record,
          "Both of them, and what the report of a study is drawn from, as memory.pickle, trace.pt.trace.json.gz, "
          "memory.json and times.json")
      ->type_name("FOLDER");
  add_word(command, "--trace-steps", "Which steps of this run these two are of; the snapshot takes the first", "2-4",
           [this](const std::string& text) { std::tie(run_.trace_first, run_.trace_last) = chosen_steps(text); })
      ->type_name("FIRST-LAST");
  command.add_flag("--nvtx", run_.nvtx, "NVTX ranges around stages and ops, for Nsight Systems (GPU)");
  command.add_option("--tensorboard", run_.tensorboard, "For TensorBoard's events, step by step")->type_name("FOLDER");
  command.add_flag("--print-config", print_config,
                   "Print all flags, as they are and as they are by default, as a file for --config, and end");
  command.add_option("--print-every", print_every, "Steps between printed lines")
      ->check(CLI::Range(int64_t{1}, kMost))
      ->capture_default_str();
  add_word(
      command, "--cap",
      "Run as if the device had no more memory than this (24GiB), to see what fits: a process that needs more ends "
      "with exit code 3",
      "", [this](const std::string& text) { cap_bytes = bytes_from_string(text); })
      ->type_name("SIZE");
  command.add_flag(
      "--gemm-ceiling,!--no-gemm-ceiling", ceiling,
      "Measure the machine's GEMM rate first and show each step's share of it; with --offload the rates of copies "
      "and of the host's AdamW too, and the time that a step takes by them (the default)");
}

RunOptions TrainFlags::run_options() const {
  RunOptions options = run_;
  options.model_folder = model.folder();
  options.adapters = model.adapters;
  options.tokenizer = words.tokenizer.empty() ? options.model_folder : words.tokenizer;
  if (!run_.record.empty()) {
    if (options.trace.empty()) options.trace = run_.record / "trace.pt.trace.json.gz";
    if (options.snapshot.empty()) options.snapshot = run_.record / "memory.pickle";
  }
  return options;
}

}  // namespace tigon::app
