#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "model_flags.hpp"
#include "plan_anywhere.hpp"
#include "rates.hpp"
#include "report/report.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/sizes.hpp"
#include "tigon/train/advice.hpp"

namespace tigon::app {

namespace {

struct Flags {
  ModelFlags model;
  std::string fit, host, disk, html;
  int tensors = 12;
};

void print_formulas(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train) {
  const StudyFormulas f = study_formulas(model, parameters, train);
  fmt::print("\nBy formula, to compare:\n");
  const double each = static_cast<double>(f.static_bytes) / static_cast<double>(parameters.elements());
  fmt::print("  {:<32} {:>12}   (16P, mixed precision: {})\n", fmt::format("static, {:.4g} bytes a parameter", each),
             human_bytes(f.static_bytes), human_bytes(f.static_mixed_16p));
  fmt::print("  the input of every layer         {:>12}   batch·seq·hidden·bytes·layers\n", human_bytes(f.checkpoints));
  fmt::print("  logits, f32                      {:>12}   an eager framework holds about three of them\n",
             human_bytes(f.logits));
  fmt::print("  logits of one chunk, Liger's     {:>12}\n", human_bytes(f.chunk_logits));
}

// "24 GiB, 64 GiB of the host, 500 GiB of the disk".
std::string budget_text(const Budget& budget) {
  std::string text;
  const auto add = [&text](int64_t bytes, const char* where) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + human_bytes(bytes) + where;
  };
  add(budget.device, "");
  add(budget.host, " of the host");
  add(budget.disk, " of the disk");
  return text;
}

void print_fit(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train,
               const SpaceBytes& planned, const Budget& budget) {
  fmt::print("\nWithin {}: ", budget_text(budget));
  const Fit fit = largest_fit(model, parameters, train, budget);
  if (fit.batch > 0) {
    fmt::print("at {} tokens a sequence, batches up to {}", train.seq, fit.batch);
  } else {
    fmt::print("not even one sequence of {} tokens", train.seq);
  }
  if (fit.seq > 0) {
    fmt::print("; at batch {}, sequences up to {}.\n", train.batch, fit.seq);
  } else {
    fmt::print("; at batch {}, no sequence at all.\n", train.batch);
  }
  const auto say = [](const char* where, int64_t most, int64_t need) {
    if (most == 0) return;
    if (need <= most) {
      fmt::print("This run fits{}, with {} to spare.\n", where, human_bytes(most - need));
    } else {
      fmt::print("This run needs {} more than that{}.\n", human_bytes(need - most), where);
    }
  };
  say("", budget.device, planned.device);
  say(" on the host", budget.host, planned.pinned + planned.host);
  say(" on the disk", budget.disk, planned.disk);
}

// Of the run that the plan is of.
struct Planned {
  const ModelConfig& model;
  const ParameterList& parameters;
  TrainConfig train;  // as it was planned
  Device device;      // that it is meant for
  SpaceBytes bytes;
  double seconds = 0;  // of a step at least; 0: not known
  RatesOf rates{};

  // "+33 %", beside this run's step.
  std::string more_time(double other) const {
    return seconds > 0 && other > 0 ? fmt::format("{:+.0f} %", 100 * (other / seconds - 1)) : "";
  }
};

void print_step(const Planned& run, const Prediction& step, const std::string& whose) {
  if (step.seconds <= 0) return;
  const auto tokens = static_cast<double>(run.train.tokens() * run.train.accumulate);
  fmt::print("\nA step takes at least {:.3g} s ({}), {:.0f} tokens/s, by rates\n{}.\n", step.seconds, parts_text(step),
             tokens / step.seconds, whose);
}

void print_advice(const Planned& run, const Budget& budget) {
  const std::vector<Advice> list = advice(run.model, run.parameters, run.train, run.device, run.rates);
  if (list.empty()) return;
  const bool too_large = budget.given() && !budget.holds(run.bytes);
  fmt::print("\nTo need less, one after the other{}{}:\n", too_large ? "" : " (none is necessary)",
             run.seconds > 0 ? ", and how much longer a step takes then" : "");
  bool fits = !too_large;
  for (const Advice& a : list) {
    const bool enough = !fits && budget.holds(a.bytes);
    fits = fits || enough;
    fmt::print("  {:<28} {:>12} in all{}  {:>7}  {}\n", (a.instead ? "or " : "") + a.flag, human_bytes(a.total_bytes),
               enough ? " — fits" : "", run.more_time(a.seconds), a.why);
  }
}

// Where the host has too little.
void print_host_advice(const Planned& run, const Budget& budget) {
  if (budget.host == 0 || run.bytes.pinned + run.bytes.host <= budget.host) return;
  const std::vector<HostAdvice> list = host_advice(run.model, run.parameters, run.train, run.rates);
  if (list.empty()) return;
  fmt::print("\nTo need less of the host, one after the other:\n");
  for (const HostAdvice& a : list) {
    const std::string time = run.more_time(a.seconds);
    fmt::print("  {}{}\n    {} of the host, {} of the disk; a step writes {} and reads {}{}\n", a.flag,
               budget.holds(a.bytes) ? " — fits" : "", human_bytes(a.bytes.pinned + a.bytes.host),
               human_bytes(a.bytes.disk), human_bytes(a.step.written), human_bytes(a.step.read),
               time.empty() ? "" : ", " + time + " time");
  }
}

// The page, with the same run unfused beside it, so that what the fused kernels save is seen.
void write_page(const Flags& flags, const ModelConfig& model, const ParameterList& parameters, const MemoryPlan& plan,
                const Budget& budget, const std::string& note) {
  const FusedOps unfused = fused_from_string("none");
  const bool fused = fused_to_string(plan.train.fused) != fused_to_string(unfused);
  std::vector<report::PlannedRun> runs;
  runs.push_back({.name = "planned", .title = fused ? "As planned" : "As planned, unfused", .plan = plan});
  if (fused) {
    TrainConfig train = flags.model.train;
    train.fused = unfused;
    std::string same_note;
    try {
      runs.push_back({.name = "unfused",
                      .title = "Without fused kernels",
                      .plan = plan_anywhere(model, parameters, train, same_note)});
    } catch (const Error& error) {  // a loss in pieces has no unfused form
      fmt::print("\nThe page shows this plan alone. ({})\n", error.what());
    }
  }
  const std::string name = flags.model.folder().empty() ? flags.model.model : flags.model.folder().filename().string();
  report::write_plan_page(
      flags.html,
      {.name = name, .config = model, .parameters = parameters, .device = to_string(flags.model.train.device)}, runs,
      budget.device, note.empty() ? std::vector<std::string>{} : std::vector{note});
  fmt::print("\nThe plan as a page is in {}\n", flags.html);
}

void run(const Flags& flags) {
  const ModelConfig model = flags.model.model_config();
  TrainConfig train = flags.model.train;
  const auto size = [](const std::string& text) { return text.empty() ? 0 : bytes_from_string(text); };
  const Budget budget{.device = size(flags.fit), .host = size(flags.host), .disk = size(flags.disk)};
  const ParameterList parameters(model, train.lora);
  const int64_t count = parameters.elements();

  std::string note;
  const MemoryPlan plan = plan_anywhere(model, parameters, train, note);

  fmt::print("{} {}: {:.1f} M parameters, {} layers, hidden {}, {} + {} heads of {}, vocabulary {}\n",
             flags.model.model, to_string(model.family), static_cast<double>(count) * 1e-6, model.layers, model.hidden,
             model.heads, model.kv_heads, model.head_dim, model.vocab);
  fmt::print("{} × {} tokens{}, {}, recompute {}, fused {}, loss by {} tokens{}, {}\n\n", train.batch, train.seq,
             train.accumulate > 1 ? fmt::format(" × {} micro-batches", train.accumulate) : "",
             train.precision.name +
                 (train.optimizer.kind == Optimizer::adamw ? std::string() : ", " + optimizer_text(train.optimizer)),
             recompute_to_string(train.memory.recompute), fused_to_string(train.fused), loss_chunk(model, plan.train),
             homes_text(plan.train), to_string(flags.model.train.device));
  fmt::print("{}", plan_table(plan));
  fmt::print("\nAlive at the peak, all layers together:\n");
  int shown = 0;
  for (const MemoryPlan::PeakRow& row : plan.alive_at_peak()) {
    if (shown++ == flags.tensors) break;
    fmt::print("  {:>12}  {} ({}{})\n", human_bytes(row.bytes), row.name, to_string(row.memory_class),
               row.count > 1 ? fmt::format(", {} of them", row.count) : "");
  }
  print_formulas(model, parameters, train);
  // By the rates of the machine that it is meant for: of this one, if it is.
  const Device device = flags.model.train.device;
  const bool here = note.empty();
  RateBook book;
  Planned planned{.model = model, .parameters = parameters, .train = train, .device = device, .bytes = plan.bytes()};
  planned.rates = [&](const TrainConfig& changed) {
    // A GPU's rate is of 16-bit products.
    const bool timed = device.kind == DeviceKind::cpu || changed.precision.weight != DType::f32;
    return !here ? recorded_rates(changed) : timed ? book.of(changed) : Rates{};
  };
  const Prediction step = predict_step(model, plan, planned.rates(plan.train));
  planned.seconds = step.seconds;
  print_step(planned, step, here ? "measured here" : recorded_rates_text());
  if (budget.given()) print_fit(model, parameters, train, plan.bytes(), budget);
  print_advice(planned, budget);
  print_host_advice(planned, budget);
  fmt::print("{}", note);
  if (!flags.html.empty()) write_page(flags, model, parameters, plan, budget, note);
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* plan = app.add_subcommand("plan", "Say what a training run will need, to the byte, without running it");
  const auto flags = std::make_shared<Flags>();
  flags->model.add_to(*plan);
  plan->option_defaults()->group("Output");
  plan->add_option("--html", flags->html, "Also write a page with the step's memory as pictures, fused and unfused")
      ->type_name("FILE");
  // Checked here, because later an empty one would mean that none was given.
  const auto size = [plan](const char* name, std::string& text, const char* help) {
    plan->add_option(name, text, help)->type_name("SIZE")->check([](const std::string& given) {
      (void)bytes_from_string(given);
      return std::string();
    });
  };
  size("--fit", flags->fit, "A budget such as 24GiB: also find the largest batch and sequence within it");
  size("--host", flags->host, "The same for the host's memory, of which --offload takes some");
  size("--disk", flags->disk, "The same for the disk");
  plan->add_option("--tensors", flags->tensors, "How many rows of what is alive at the peak")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  plan->footer(
      "\nThe plan is the training step itself, walked without computing: the same calls take the same memory, so a run "
      "uses\nexactly these bytes.\n\n"
      "Examples:\n"
      "  tigon plan --model llama-3.2-1b --batch 8 --seq 1024 --precision bf16-sr --recompute block\n"
      "  tigon plan --model llama-3.1-8b --device cuda --precision bf16-sr --recompute block --fit 80GiB   # needs no "
      "GPU\n"
      "  tigon plan --model llama-3.2-1b --fused none        # what the fused kernels save\n"
      "  tigon plan --model llama-3.2-1b --batch 4 --seq 1024 --recompute block --html plan.html   # seen in a "
      "browser");
  plan->callback([flags] { run(*flags); });
}

}  // namespace tigon::app
