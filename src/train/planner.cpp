#include "tigon/train/planner.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "train/low_rank.hpp"
#include "train/phase_marks.hpp"
#include "train/residency/residency.hpp"
#include "train/step.hpp"

namespace tigon {

namespace {

// "layers.12.gate_up" as "layers.*.gate_up".
std::string without_layer(const std::string& name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return name;
  const size_t dot = name.find('.', kPrefix.size());
  return dot == std::string::npos ? name : "layers.*" + name.substr(dot);
}

// What nobody ever holds at once may be more than 63 bits say: then the most they do.
int64_t product(std::initializer_list<int64_t> factors) {
  int64_t all = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(all, factor, &all)) return std::numeric_limits<int64_t>::max();
  }
  return all;
}

MemoryPlan walk(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& asked) {
  check_train_config(asked, model);
  TrainConfig train = asked;
  // Updates that move something are early wherever they may be.
  if (train.memory.moves_updates()) train.memory.update_early = false;
  check_low_rank(parameters, train);
  train.memory.updater = settled_updater(train.memory.updater, train.memory.homes, train.device, train.optimizer.kind);
  if (static_cast<int64_t>(parameters.blocks.size()) != model.layers) {
    throw Error(ErrorCode::invalid_argument, {.where = "plan_memory",
                                              .what = "the parameters are those of another model",
                                              .expected = std::to_string(model.layers) + " layers",
                                              .got = std::to_string(parameters.blocks.size())});
  }
  MemoryPlan plan;
  plan.train = train;
  const Step step(model, parameters, train);
  {
    // All before what stays, which holds the step's gradients: after an error they go back to arenas that are there.
    MeasureArena stays(plan.residents.ledger), pinned(plan.pinned.ledger), host(plan.host.ledger);
    Disk disk(plan.disk);
    std::deque<MeasureArena> arenas;
    for (Sequence& sequence : plan.phases) arenas.emplace_back(sequence.ledger);
    const auto with = [&](Device device, MeasureArena& arena) {
      return Context{.device = device, .threads = train.threads, .memory = &arena};
    };
    std::deque<PhaseMarks> marks;
    for (Sequence& sequence : plan.phases) marks.emplace_back(sequence);
    const auto in = [&](Phase phase) {
      Context ctx = with(train.device, arenas[static_cast<size_t>(phase)]);
      ctx.observer = &marks[static_cast<size_t>(phase)];
      return ctx;
    };
    Residents r({.device = with(train.device, stays), .pinned = with({}, pinned), .host = with({}, host), .disk = disk},
                parameters, model, train);
    Residency residency(model, parameters, train, r);
    const StepBuffers &buffers = r.buffers[0], &micro = r.turn ? *r.turn : buffers;
    // The sequences are measured while what stays is there, as they run.
    residency.begin_step();
    const UpdateArgs args;
    GradientSink& sink = residency.gradients(buffers, args);
    const auto walk_micro = [&](Phase phase) {
      step.forward_backward(in(phase), residency.weights(), residency.vocabulary(), sink, residency.inputs(), micro);
    };
    walk_micro(Phase::step);
    const DiskTraffic first = disk.traffic();
    plan.up_bytes = residency.traffic().up_bytes;
    plan.down_bytes = residency.traffic().down_bytes;
    if (train.turns()) {
      walk_micro(Phase::further);
      plan.up_bytes += (train.accumulate - 1) * (residency.traffic().up_bytes - plan.up_bytes);
      plan.down_bytes += (train.accumulate - 1) * (residency.traffic().down_bytes - plan.down_bytes);
    }
    const DiskTraffic second = disk.traffic();
    plan.updates_early = residency.updates_early();
    const Context update_ctx = in(train.turns() ? Phase::update : Phase::step);
    if (!train.memory.update_early) residency.norm(update_ctx, buffers, 1.0);
    if (!residency.updates_early()) residency.update(update_ctx, buffers, args);
    // All further micro-batches are as the one that was walked.
    const int64_t more = train.turns() ? train.accumulate - 2 : 0;
    plan.disk_step = {.read = disk.traffic().read + more * (second.read - first.read),
                      .written = disk.traffic().written + more * (second.written - first.written)};
    if (train.evaluates) step.evaluate(in(Phase::evaluation), residency.weights(), residency.vocabulary(), buffers);
    if (train.speaks > 0) {
      const TrainConfig one = speaking(train);
      const StepBuffers text = text_buffers(in(Phase::speech), one);
      (void)Step(model, parameters, one).next_token(in(Phase::speech), residency.weights(), text, 0);
    }
  }
  for (Sequence* stays : {&plan.residents, &plan.pinned, &plan.host}) stays->plan = Plan::pack(stays->ledger);
  for (Sequence& sequence : plan.phases) sequence.plan = Plan::pack(sequence.ledger);
  return plan;
}

}  // namespace

int64_t loss_chunk(const ModelConfig& model, const TrainConfig& train) {
  if (!train.fused.flce) return train.tokens();
  return ops::chunk_tokens(train.memory.chunk, train.device, train.tokens(), model.hidden, model.vocab,
                           ops::logit_bytes(train.device, train.precision.weight));
}

TrainConfig with_larger_chunk(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train) {
  const ops::ChunkRule& rule = train.memory.chunk;
  if (!train.fused.flce || rule.tokens > 0 || rule.budget_bytes > 0 || rule.liger || rule.lean) return train;
  TrainConfig best = train;
  const int64_t total = walk(model, parameters, train).total_bytes(), most = total + total / 50;
  for (const int64_t budget : {int64_t{512} << 20, int64_t{1} << 30}) {
    TrainConfig larger = train;
    larger.memory.chunk.budget_bytes = budget;
    if (loss_chunk(model, larger) <= loss_chunk(model, best)) continue;
    if (walk(model, parameters, larger).total_bytes() > most) break;
    best = larger;
  }
  return best;
}

MemoryPlan plan_memory(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& asked) {
  TrainConfig train = asked;
  ops::ChunkRule& chunk = train.memory.chunk;
  // A head that comes in panels comes by twice whatever the tokens, so all of them meet it at once.
  if (train.streams_vocabulary()) chunk.tokens = train.tokens();
  if (chunk.lean && chunk.budget_bytes == 0 && loss_chunk(model, train) == train.tokens()) {
    // Wide enough for products at full speed; and the same panels where the head stays, so that the bits are the same.
    constexpr int64_t kBudget = int64_t{32} << 20, kClasses = 1024;
    chunk.budget_bytes =
        std::max(kBudget, train.tokens() * kClasses * ops::logit_bytes(train.device, train.precision.weight));
  }
  const bool gpu = train.device.kind == DeviceKind::cuda;
  return walk(model, parameters, gpu ? with_larger_chunk(model, parameters, train) : train);
}

const Sequence& MemoryPlan::largest() const {
  return *std::max_element(phases.begin(), phases.end(),
                           [](const Sequence& a, const Sequence& b) { return a.plan.bytes() < b.plan.bytes(); });
}

int64_t MemoryPlan::transient_bytes() const { return align_up(largest().plan.bytes()); }

std::array<int64_t, kMemoryClassCount> MemoryPlan::peak_by_class() const {
  auto sums = residents.ledger.peak_by_class();
  const auto transient = largest().ledger.peak_by_class();
  for (size_t c = 0; c < sums.size(); ++c) sums[c] += transient[c];
  return sums;
}

std::vector<MemoryPlan::PeakRow> MemoryPlan::alive_at_peak() const {
  std::map<std::pair<std::string, MemoryClass>, PeakRow> rows;
  for (const Sequence* sequence : {&residents, &largest()}) {
    for (const LedgerEntry& entry : sequence->ledger.alive_at_peak()) {
      const std::string name = without_layer(entry.name);
      PeakRow& row = rows[{name, entry.memory_class}];
      row.name = name;
      row.memory_class = entry.memory_class;
      row.bytes += entry.granted;
      ++row.count;
    }
  }
  std::vector<PeakRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return list;
}

StudyFormulas study_formulas(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train) {
  const int64_t tokens = train.tokens();
  const ops::ChunkRule paper{.liger = true};
  const int64_t chunk = ops::chunk_tokens(paper, train.device, tokens, model.hidden, model.vocab, 4);
  return {.static_bytes = static_bytes(parameters, train),
          .static_mixed_16p = parameters.elements() * 16,
          .checkpoints = product({tokens, model.hidden, size_of(train.precision.weight), model.layers}),
          .logits = product({tokens, model.vocab, 4}),
          .chunk_logits = product({chunk, model.vocab, 4})};
}

Fit largest_fit(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train,
                const Budget& budget) {
  // The largest value in [1, most] whose plan fits, by doubling and halving; 0 if none.
  const auto search = [&](int64_t TrainConfig::*member, int64_t most) {
    const auto fits = [&](int64_t value) {
      TrainConfig tried = train;
      tried.*member = value;
      return budget.holds(plan_memory(model, parameters, tried).bytes());
    };
    int64_t good = 0, bad = 1;
    while (bad <= most && fits(bad)) {
      good = bad;
      bad *= 2;
    }
    bad = std::min(bad, most + 1);
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    return good;
  };
  return {.batch = search(&TrainConfig::batch, int64_t{1} << 16),
          .seq = search(&TrainConfig::seq, std::min(model.longest_sequence(), kLongestSequence))};
}

}  // namespace tigon
