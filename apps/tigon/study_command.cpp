#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "commands.hpp"
#include "plan_anywhere.hpp"
#include "progress.hpp"
#include "rates.hpp"
#include "report/report.hpp"
#include "screen.hpp"
#include "signals.hpp"
#include "study/words.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/sizes.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/study/study.hpp"
#include "train_flags.hpp"

namespace tigon::app {

namespace {

struct Flags {
  std::string file, preset, show, output, model, device, flags, cap;
  std::vector<int64_t> batches, seqs;
  std::vector<std::string> strategies;
  int64_t steps = 0, warmup = 0;
  bool prove = false, dry = false;
};

// The flags of `tigon train` that these words are.
TrainFlags train_flags(std::vector<std::string> words) {
  CLI::App app;
  TrainFlags flags;
  flags.add_to(app);
  words.erase(words.begin());  // "train"
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "flags of the study", .what = error.what(), .fix = "tigon train --help lists them."});
  }
  return flags;
}

PlannedPoint planned(const std::vector<std::string>& words) {
  const TrainFlags flags = train_flags(words);
  PlannedPoint point{.model = flags.model.model_config()};
  const ParameterList parameters(point.model, flags.model.train.lora);
  point.parameters = parameters.elements();
  point.plan = plan_memory(point.model, parameters, flags.model.train);
  point.formulas = study_formulas(point.model, parameters, flags.model.train);
  point.flops = step_flops(point.model, point.plan.train) + recompute_flops(point.model, point.plan.train);
  return point;
}

Study asked(const Flags& flags) {
  if (flags.file.empty() == flags.preset.empty()) {
    throw Error(ErrorCode::invalid_argument, {.where = "tigon study",
                                              .what = "which study?",
                                              .expected = "a TOML file, or --preset NAME",
                                              .fix = "tigon study --preset cpu is a good beginning."});
  }
  const std::string where = flags.preset.empty() ? flags.file : "preset " + flags.preset;
  Study study = flags.preset.empty() ? study_from_toml(read_text_file(flags.file, int64_t{1} << 20), where)
                                     : study_from_toml(study_preset_text(flags.preset), where);
  if (study.name.empty()) study.name = std::filesystem::path(flags.file).stem().string();
  if (study.title.empty()) study.title = study.name;
  if (!flags.model.empty()) study.model = flags.model;
  if (!flags.device.empty()) {
    study.flags += " --device " + flags.device;
    if (!study.kernels.empty()) study.kernels += " --device " + flags.device;
  }
  if (!flags.flags.empty()) study.flags += " " + flags.flags;
  if (!flags.cap.empty()) study.cap_bytes = flags.cap == "none" ? 0 : bytes_from_string(flags.cap);
  if (flags.steps > 0) study.steps = flags.steps;
  if (flags.warmup > 0) study.warmup = flags.warmup;
  if (!flags.batches.empty() || !flags.seqs.empty()) {
    Sweep sweep{.batches = flags.batches, .seqs = flags.seqs};
    const Sweep first = study.sweeps.empty() ? Sweep{.batches = {1}, .seqs = {1024}} : study.sweeps.front();
    if (sweep.batches.empty()) sweep.batches = first.batches;
    if (sweep.seqs.empty()) sweep.seqs = first.seqs;
    study.sweeps = {std::move(sweep)};
  }
  if (!flags.strategies.empty()) {
    std::vector<Strategy> chosen;
    for (const std::string& name : flags.strategies) {
      const auto found = std::find_if(study.strategies.begin(), study.strategies.end(),
                                      [&](const Strategy& s) { return s.name == name; });
      if (found != study.strategies.end()) {
        chosen.push_back(*found);
        continue;
      }
      std::string known;
      for (const Strategy& s : study.strategies) known += (known.empty() ? "" : ", ") + s.name;
      throw Error(ErrorCode::invalid_argument, {.where = "--strategies",
                                                .what = "this study has no such strategy",
                                                .expected = "some of " + known,
                                                .got = "'" + name + "'"});
    }
    study.strategies = std::move(chosen);
    // A sweep of none of the chosen goes; one that names no strategies is of all.
    std::vector<Sweep> sweeps;
    for (Sweep& sweep : study.sweeps) {
      const bool all = sweep.strategies.empty();
      std::erase_if(sweep.strategies, [&](const std::string& name) {
        return std::find(flags.strategies.begin(), flags.strategies.end(), name) == flags.strategies.end();
      });
      if (all || !sweep.strategies.empty()) sweeps.push_back(std::move(sweep));
    }
    study.sweeps = std::move(sweeps);
  }
  return study;
}

std::string shape_text(const StudyPoint& point) {
  return fmt::format("{} × {}{}", point.batch, point.seq,
                     point.accumulate > 1 ? fmt::format(" × {} micro-batches", point.accumulate) : "");
}

class StudyScreen final : public StudyObserver {
 public:
  explicit StudyScreen(const Study& study) {
    for (const Strategy& s : study.strategies) width_ = std::max(width_, s.name.size());
  }
  void on_begin(int64_t done, int64_t all, const std::string& what, double left) override {
    progress_.show(static_cast<int>(done), static_cast<int>(all),
                   left < 0 ? what : fmt::format("{}, about {} left", what, duration(left)));
  }
  void on_point(const PointResult& r) override {
    progress_.clear();
    show("{:<{}}  {:<14}", r.point.strategy, width_, shape_text(r.point));
    if (r.status == PointStatus::done) {
      show(" {:>10.0f} tokens/s   {:>10} of the device", r.tokens_per_second.median, human_bytes(r.peak_bytes()));
      if (r.waits) {
        show("   compute {:.0f}% copies {:.0f}% update {:.0f}%", 100 * r.compute_share, 100 * r.copies_share,
             100 * r.updates_share);
      }
    } else if (r.status == PointStatus::out_of_memory) {
      show(" out of memory: {}", r.why);
    } else {
      show(" failed: {}", r.why);
    }
    show("\n");
  }
  void on_message(const std::string& text) override {
    progress_.clear();
    show("{}\n", text);
  }
  void clear() { progress_.clear(); }

 private:
  Progress progress_;
  size_t width_ = 0;
};

// A study of kernels alone runs somewhere too.
std::vector<std::string> kernels_device(const Study& study) {
  const std::vector<std::string> flags = words_of(study.kernels, "kernels");
  std::vector<std::string> words = {"train"};
  for (size_t w = 0; w + 1 < flags.size(); ++w) {
    if (flags[w] == "--device") words.insert(words.end(), {flags[w], flags[w + 1]});
  }
  return words;
}

// What the study would run, without running it.
void print_plans(const Study& study) {
  show("{}: {}\n\n", study.name, study.title);
  std::string note;
  for (const StudyPoint& point : study_points(study)) {
    TrainFlags flags = train_flags(point_words(study, point));
    const ModelConfig model = flags.model.model_config();
    const ParameterList parameters(model, flags.model.train.lora);
    const SpaceBytes bytes = plan_anywhere(model, parameters, flags.model.train, note).bytes();
    const bool fits = study.cap_bytes == 0 || bytes.device <= study.cap_bytes;
    show("{:<28} {:>12} of the device{}{}\n", point.id, human_bytes(bytes.device),
         bytes.pinned + bytes.host > 0 ? fmt::format(", {} of the host", human_bytes(bytes.pinned + bytes.host)) : "",
         fits ? "" : "   more than the cap");
  }
  if (study.cap_bytes > 0) show("\ncap: {}\n", human_bytes(study.cap_bytes));
  show("{}", note);
}

// The study's page, and what it says in words. A study is worth more than its page.
void show_page(const std::filesystem::path& folder) {
  try {
    const report::Summary page = report::write_report(folder, folder / "report.html");
    for (const std::string& sentence : page.headline) show("\n{}", sentence);
    show("\n\nThe page with the pictures is {}\n", (folder / "report.html").string());
  } catch (const Error& error) {
    show("The page could not be made: {}\n", error.what());
  }
}

int run(const Flags& flags, const std::string& command) {
  if (!flags.show.empty()) {
    show("{}", study_preset_text(flags.show));
    return 0;
  }
  const Study study = asked(flags);
  if (flags.dry) {
    print_plans(study);
    return 0;
  }
  const std::vector<StudyPoint> points = study_points(study);
  StudyOptions options{
      .folder = flags.output.empty() ? "study-" + study.name : flags.output, .command = command, .prove = flags.prove};
  options.plan = planned;
  const TrainConfig train =
      train_flags(points.empty() ? kernels_device(study) : point_words(study, points.front())).model.train;
  options.device = train.device;

  StudyScreen screen(study);
  screen.on_begin(0, static_cast<int64_t>(points.size()), "measuring this machine", -1);
  options.rates = RateBook().of(train, true);
  const CatchSignals signals;
  const StudyOutcome outcome = run_study(study, options, screen, signals.stop());
  screen.clear();
  if (outcome.stopped) {
    show("Stopped. What is finished is kept in {}: the same command goes on from there.\n", options.folder.string());
    return signals.exit_code();
  }
  if (outcome.points > 0) {
    show("\n{} points: {} done, {} out of memory, {} failed; all in {}\n", outcome.points, outcome.done,
         outcome.out_of_memory, outcome.failed, options.folder.string());
  }
  show_page(options.folder);
  if (outcome.smallest_plan > 0) {
    show("Nothing fits within the cap. The smallest that works is --cap {}{}.\n", outcome.smallest_plan,
         train.device.kind == DeviceKind::cpu ? "" : " and what the GPU's libraries take beside the plan");
  }
  return outcome.failed > 0 || outcome.kernels_failed ? 1 : 0;
}

}  // namespace

void add_study(CLI::App& app, std::vector<std::string> words, int& exit_code) {
  CLI::App* study =
      app.add_subcommand("study", "Run strategies side by side, and keep what each needs and how fast it is");
  const auto flags = std::make_shared<Flags>();
  std::string presets;
  for (const std::string& name : study_preset_names()) presets += (presets.empty() ? "" : ", ") + name;
  study->option_defaults()->group("What to run");
  study->add_option("study", flags->file, "A study in TOML; tigon study --show cpu prints one to start from")
      ->type_name("FILE");
  study->add_option("--preset", flags->preset, "A study that is there already: " + presets)->type_name("NAME");
  study->add_option("--show", flags->show, "Print a preset as TOML")->type_name("NAME");
  study
      ->add_option("--output", flags->output,
                   "Where everything goes, and where an interrupted study goes on (default study-NAME)")
      ->type_name("FOLDER");
  study->add_flag("--dry-run", flags->dry, "Only say what each point would need");
  study->add_flag("--prove", flags->prove, "Also run the points that by their plans have no room");
  study->option_defaults()->group("Instead of what the study says");
  study->add_option("--model", flags->model, "The model of all points")->type_name("MODEL");
  study->add_option("--device", flags->device, "cpu, cuda or cuda:N")->type_name("DEVICE");
  study->add_option("--strategies", flags->strategies, "Some of the study's, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  study->add_option("--batches", flags->batches, "Sequences per micro-batch, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->type_name("LIST");
  study->add_option("--seqs", flags->seqs, "Tokens per sequence, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(int64_t{1}, kLongestSequence))
      ->type_name("LIST");
  study->add_option("--steps", flags->steps, "Steps that are measured, of each point")->check(CLI::Range(1, 100000));
  study->add_option("--warmup", flags->warmup, "Steps before them")->check(CLI::Range(1, 1000));
  study->add_option("--cap", flags->cap, "Of the device's memory, as if it had no more: 24GiB; none for all of it")
      ->type_name("SIZE");
  study->add_option("--flags", flags->flags, "More flags of tigon train, for all points, in quotation marks")
      ->type_name("FLAGS");
  study->footer(
      "\nEach point is a tigon train in a process of its own, with random tokens: some steps to warm up, some that are "
      "measured\n(medians, 20 and 80 % quantiles), one that is recorded. Running out of memory is a result. The same "
      "command goes on\nwhere it was interrupted.\n\n"
      "Examples:\n"
      "  tigon study --preset cpu                                     # a few minutes on two cores\n"
      "  tigon study --preset single-gpu --cap 16GiB --batches 1,4,16\n"
      "  tigon study --show cpu > mine.toml; tigon study mine.toml");
  study->callback([flags, &exit_code, words = std::move(words)] { exit_code = run(*flags, command_text(words)); });
}

}  // namespace tigon::app
