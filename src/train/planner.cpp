#include "tigon/train/planner.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
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
  train.memory.updater = settled_updater(train.memory.updater, train.memory.homes, train.device);
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
    const auto in = [&](Phase phase) { return with(train.device, arenas[static_cast<size_t>(phase)]); };
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
  if (train.streams_vocabulary()) {
    // The head comes by twice whatever the tokens, so all of them meet it at once, in panels wide enough for products
    // at full speed.
    constexpr int64_t kBudget = int64_t{32} << 20, kClasses = 1024;
    chunk.tokens = train.tokens();
    const int64_t logits = train.tokens() * kClasses * ops::logit_bytes(train.device, train.precision.weight);
    if (chunk.budget_bytes == 0) chunk.budget_bytes = std::max(kBudget, logits);
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

namespace {

// The stages by name, as --recompute takes them. With tiles the MLP is one stage, without them three.
StageMask nameable(StageMask mask, bool tiled) {
  const std::string text = recompute_to_string(mask);
  if (text == "none" || text == "selective" || text == "block") return mask;
  const StageMask parts = stage_bit(StageId::gate_up) | stage_bit(StageId::activation) | stage_bit(StageId::down);
  if (tiled && (mask & parts) == parts) mask |= stage_bit(StageId::mlp);
  return mask & ~(tiled ? parts : stage_bit(StageId::mlp));
}

}  // namespace

std::vector<Advice> advice(const ModelConfig& model, const ParameterList& parameters, TrainConfig train) {
  std::vector<Advice> list;
  int64_t least = plan_memory(model, parameters, train).total_bytes();
  // Takes a change up if it saves anything here.
  const auto suggest = [&](const TrainConfig& changed, std::string flag, std::string why) {
    const SpaceBytes bytes = plan_memory(model, parameters, changed).bytes();
    const int64_t total = bytes.device;
    if (total >= least) return;
    least = total;
    train = changed;
    list.push_back({std::move(flag), std::move(why), total, bytes});
  };
  const auto recompute = [&](const char* what) {
    TrainConfig changed = train;
    changed.memory.recompute |= recompute_from_string(what);
    changed.memory.recompute = nameable(changed.memory.recompute, changed.memory.mlp_tile > 0);
    return changed;
  };
  const auto precision = [&](const char* name) {
    TrainConfig changed = train;
    changed.precision = precision_from_string(name);
    return changed;
  };
  // The study's order: fused kernels and checkpointing always; then precision; then smaller pieces.
  TrainConfig fused = train;
  fused.fused = {};
  suggest(fused, "--fused all", "no whole logits, no intermediates; faster as well");
  const TrainConfig selective = recompute("selective");
  suggest(selective, "--recompute " + recompute_to_string(selective.memory.recompute),
          "norms and activations are made again: a few per cent of time");
  suggest(recompute("block"), "--recompute block", "only each layer's input stays: about a quarter more time");
  if (train.precision.weight == DType::f32) {
    suggest(precision("bf16"), "--precision bf16", "16-bit weights, gradients and activations, f32 master copy");
  }
  suggest(precision("bf16-sr"), "--precision bf16-sr", "8 bytes a parameter: bf16 states with stochastic rounding");
  const auto offload = [&](const char* what, const char* why) {
    TrainConfig changed = train;
    changed.memory.homes = homes_from_string(what);
    suggest(changed, std::string("--offload ") + what, why);
  };
  if (train.device.kind == DeviceKind::cuda && !train.memory.homes.any_away()) {
    offload("optimizer", "states and gradients on the host, updated behind the next forward");
    offload("all", "weights too: they come twice a step, which large batches hide");
    offload("all+checkpoints", "each layer's input as well");
  }
  if (train.optimizer.kind == Optimizer::adamw) {
    TrainConfig coded = train;
    coded.optimizer.kind = Optimizer::adamw8;
    suggest(coded, "--optimizer adamw8", "AdamW's m and v in 8 bits each, but of the embedding and of what is small");
  }
  TrainConfig tiled = train;
  tiled.memory.mlp_tile = std::min<int64_t>(2048, train.tokens());
  tiled.memory.recompute = nameable(train.memory.recompute, true);
  const std::string stages = tiled.memory.recompute == train.memory.recompute
                                 ? ""
                                 : "--recompute " + recompute_to_string(tiled.memory.recompute) + " ";
  suggest(tiled, stages + "--mlp-tile " + std::to_string(tiled.memory.mlp_tile),
          "the MLP's inner values for a tile of tokens at a time");
  TrainConfig lean = train;
  lean.memory.chunk.lean = true;
  suggest(lean, "--lean-loss",
          lean.streams_vocabulary() ? "embedding and head come in panels too, never whole: a fourth product"
                                    : "the loss in panels of the vocabulary: a fourth product");
  if (!train.memory.update_early && train.accumulate == 1) {
    TrainConfig early = train;
    early.memory.update_early = true;
    early.clip = 0;
    suggest(early, "--update-early --clip 0", "one layer's gradients at a time, updated in backward; no clipping");
  }
  if (train.batch > 1 && !train.memory.update_early && train.accumulate * train.batch <= kMostMicroBatches) {
    TrainConfig micro = train;
    micro.accumulate *= micro.batch;
    micro.batch = 1;
    suggest(micro, "--batch 1 --accumulate " + std::to_string(micro.accumulate), "the same step in micro-batches");
  }
  return list;
}

std::vector<HostAdvice> host_advice(const ModelConfig& model, const ParameterList& parameters, TrainConfig train) {
  std::vector<HostAdvice> list;
  Homes& homes = train.memory.homes;
  const auto suggest = [&](std::string flag) {
    const MemoryPlan plan = plan_memory(model, parameters, train);
    list.push_back({.flag = std::move(flag), .bytes = plan.bytes(), .step = plan.disk_step});
  };
  if (homes.states == Home::host && train.optimizer.kind == Optimizer::adamw) {
    train.optimizer.kind = Optimizer::adamw8;
    suggest("--optimizer adamw8");
  }
  // The largest first, and last what moves the most.
  for (Home* home : {&homes.states, &homes.layer_inputs, &homes.gradients, &homes.weights}) {
    if (*home != Home::host) continue;
    *home = Home::nvme;
    suggest("--offload " + to_string(homes));
  }
  return list;
}

}  // namespace tigon
