// Planned bytes are the bytes that a run uses, exactly, and the plan's peak is the peak of a run that takes each block
// from the heap.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/train/advice.hpp"
#include "train/residency/residency.hpp"
#include "train/small_model.hpp"
#include "train/step.hpp"

namespace tigon::test {
namespace {

std::vector<TrainConfig> configs() {
  std::vector<TrainConfig> list;
  for (const char* precision : {"fp32", "bf16", "bf16-sr", "fp16"}) {
    for (const char* recompute : {"none", "selective", "block"}) {
      for (const int64_t accumulate : {1, 3}) {
        TrainConfig train = small_run();
        train.precision = precision_from_string(precision);
        train.memory.recompute = recompute_from_string(recompute);
        train.accumulate = accumulate;
        train.evaluates = accumulate == 3;
        list.push_back(train);
      }
    }
  }
  TrainConfig unfused = small_run();
  unfused.fused = fused_from_string("none");
  list.push_back(unfused);
  TrainConfig tiled = small_run();
  tiled.memory.mlp_tile = 5;
  list.push_back(tiled);
  return list;
}

TEST(PlanMemory, PlannedIsUsed) {
  for (const ModelConfig& model : {small_model(), small_qwen3()}) {
    for (const TrainConfig& train : configs()) {
      Trainer trainer(model, train);
      trainer.initialize();
      for (int64_t step = 0; step < 2; ++step) {
        trainer.submit(small_batch(model, train, step));
        (void)trainer.collect();
      }
      if (train.evaluates) (void)trainer.evaluate(small_batch(model, train, 0)[0]);
      EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
      EXPECT_EQ(trainer.plan().total_bytes(), plan_memory(model, trainer.parameters(), train).total_bytes());
    }
  }
}

// The same calls on a heap that keeps a ledger: nobody tells it what the plan was.
TEST(PlanMemory, ThePeakIsTheHeapsPeak) {
  for (const TrainConfig& train : configs()) {
    const ModelConfig model = small_model();
    const ParameterList parameters(model);
    const MemoryPlan plan = plan_memory(model, parameters, train);
    Ledger stays, passes;
    HeapArena heap_stays(&stays), heap_passes(&passes);
    const Context keep{.threads = train.threads, .memory = &heap_stays},
        ctx{.threads = train.threads, .memory = &heap_passes};
    Disk none({}, 0);
    Residents r({.device = keep, .pinned = {}, .host = {}, .disk = none}, parameters, model, train);
    const StepBuffers &b = r.buffers[0], &micro = r.turn ? *r.turn : b;
    const auto zero = [](const Tensor& t) { std::fill_n(t.as<char>(), t.bytes(), char{0}); };
    for (const TrainedParameter& trained : r.parameters) {
      zero(trained.weight);
      for (const TrainedParameter::State& state : trained.states) zero(state.tensor);
    }
    *micro.loss_grad.view.as<float>() = 1.0f;
    const Step step(model, parameters, train);
    Residency residency(model, parameters, train, r);
    residency.begin_step();
    GradientSink& sink = residency.gradients(b, {});
    for (const TokenBatch& batch : small_batch(model, train, 0)) {
      std::copy(batch.ids.begin(), batch.ids.end(), micro.ids.view.as<int32_t>());
      std::copy(batch.labels.begin(), batch.labels.end(), micro.labels.view.as<int32_t>());
      step.forward_backward(ctx, residency.weights(), residency.vocabulary(), sink, residency.inputs(), micro);
    }
    const int64_t forward_backward = passes.peak_bytes();
    residency.norm(ctx, b, 1.0);
    residency.update(ctx, b, {});
    EXPECT_EQ(stays.peak_bytes(), plan.residents.plan.lower_bound());
    const int64_t planned = std::max(plan[Phase::step].plan.lower_bound(), plan[Phase::further].plan.lower_bound());
    EXPECT_EQ(train.accumulate > 1 ? forward_backward : passes.peak_bytes(), planned);
    EXPECT_EQ(passes.live_bytes(), 0);
  }
}

TEST(PlanMemory, BytesPerParameterAreTheStudys) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  EXPECT_EQ(parameters.elements(), 1'235'814'400);
  TrainConfig train;
  for (const auto& [name, bytes] : {std::pair{"fp32", 16}, {"bf16", 16}, {"fp16", 16}, {"bf16-sr", 8}}) {
    train.precision = precision_from_string(name);
    EXPECT_EQ(static_bytes(parameters, train), bytes * parameters.elements()) << name;
  }
  train.batch = 4;
  train.seq = 1024;
  train.precision = precision_from_string("fp16");
  const StudyFormulas f = study_formulas(model, parameters, train);
  EXPECT_EQ(f.checkpoints, int64_t{256} << 20);
  EXPECT_EQ(f.logits, int64_t{4} * 1024 * 128256 * 4);
}

TEST(PlanMemory, FormulasEndAtTheLargestNumber) {
  ModelConfig model = small_model();
  model.vocab = 1 << 24;
  TrainConfig train = small_run();
  train.batch = 1 << 20;
  train.seq = 1 << 24;
  EXPECT_EQ(study_formulas(model, ParameterList(model), train).logits, std::numeric_limits<int64_t>::max());
}

// The most that is alive at one time besides scratch, which depends on the CPU's instructions and threads.
int64_t peak_without_scratch(const Ledger& ledger) {
  std::map<int64_t, int64_t> changes;  // by time
  for (const LedgerEntry& entry : ledger.entries()) {
    if (entry.memory_class == MemoryClass::workspace) continue;
    changes[entry.birth] += entry.granted;
    if (entry.death >= 0) changes[entry.death] -= entry.granted;
  }
  int64_t live = 0, peak = 0;
  for (const auto& [time, change] : changes) peak = std::max(peak, live += change);
  return peak;
}

// In one step of one micro-batch the gradients are not there when the loss is computed, but where activations died.
TEST(PlanMemory, GradientsAreBornLayerByLayer) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  TrainConfig train;
  train.batch = 8;
  train.seq = 1024;
  train.precision = precision_from_string("bf16-sr");
  train.memory.recompute = recompute_from_string("block");
  const MemoryPlan plan = plan_memory(model, parameters, train);
  // When a layer's gradient is born, the loss is over and the layers above have let go of their inputs.
  std::set<int> layers;
  for (const LedgerEntry& gradient : plan[Phase::step].ledger.entries()) {
    if (gradient.memory_class != MemoryClass::gradients || !gradient.name.starts_with("layers.")) continue;
    const int layer = std::stoi(gradient.name.substr(7));
    layers.insert(layer);
    int64_t inputs = 0;
    for (const LedgerEntry& other : plan[Phase::step].ledger.entries()) {
      if (other.memory_class == MemoryClass::loss) {
        EXPECT_LT(other.death, gradient.birth) << other.name << " and " << gradient.name;
      }
      const bool lives = other.birth < gradient.birth && gradient.birth < other.death;
      if (other.memory_class == MemoryClass::layer_inputs && lives) inputs += other.granted;
    }
    EXPECT_LE(inputs, (layer + 1) * train.tokens() * model.hidden * 2) << gradient.name;
  }
  EXPECT_EQ(static_cast<int64_t>(layers.size()), model.layers);
  EXPECT_LE(plan.resident_bytes() + peak_without_scratch(plan[Phase::step].ledger), int64_t{9970} << 20);
  EXPECT_LE(plan[Phase::step].plan.bytes(),
            plan[Phase::step].plan.lower_bound() + plan[Phase::step].plan.lower_bound() / 100);
}

// What nobody chose grows as long as it costs next to nothing; the same every time.
TEST(PlanMemory, TheLossTakesWhatIsFreeAnyway) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  TrainConfig train;
  train.batch = 8;
  train.seq = 1024;
  train.precision = precision_from_string("bf16-sr");
  train.memory.recompute = recompute_from_string("block");
  const auto bytes = [&](const TrainConfig& t) { return plan_memory(model, parameters, t).total_bytes(); };
  const auto budget_of = [&](const TrainConfig& t) {
    return with_larger_chunk(model, parameters, t).memory.chunk.budget_bytes;
  };
  const TrainConfig settled = with_larger_chunk(model, parameters, train);
  EXPECT_GT(loss_chunk(model, settled), loss_chunk(model, train));
  EXPECT_LE(bytes(settled), bytes(train) + bytes(train) / 50);
  EXPECT_EQ(budget_of(train), settled.memory.chunk.budget_bytes);
  EXPECT_EQ(budget_of(settled), settled.memory.chunk.budget_bytes);
  // Where the loss is the peak, more logits are more memory.
  TrainConfig early = train;
  early.memory.update_early = true;
  early.clip = 0;
  early.batch = 2;
  EXPECT_EQ(budget_of(early), 0);
  // A choice stays.
  for (const ops::ChunkRule& rule : {ops::ChunkRule{.tokens = 512}, {.liger = true}, {.lean = true}}) {
    TrainConfig chosen = train;
    chosen.memory.chunk = rule;
    EXPECT_EQ(loss_chunk(model, with_larger_chunk(model, parameters, chosen)), loss_chunk(model, chosen));
    EXPECT_EQ(budget_of(chosen), 0);
  }
  TrainConfig unfused = train;
  unfused.fused.flce = false;
  EXPECT_EQ(budget_of(unfused), 0);
}

TEST(PlanMemory, ALargerChunkIsUsedAsPlanned) {
  ModelConfig model = small_model();
  model.vocab = 32000;
  TrainConfig train = small_run();
  train.batch = 4;
  train.seq = 64;
  train.precision = precision_from_string("bf16");
  const ParameterList parameters(model);
  train.memory.chunk.budget_bytes = int64_t{512} << 20;
  EXPECT_EQ(loss_chunk(model, train), train.tokens());
  Trainer trainer(model, train);
  trainer.initialize();
  trainer.submit(small_batch(model, train, 0));
  (void)trainer.collect();
  EXPECT_EQ(trainer.used_bytes(), plan_memory(model, parameters, train).total_bytes());
}

TEST(PlanMemory, FitIsTheLargestThatFits) {
  const ModelConfig model = small_model();
  const ParameterList parameters(model);
  TrainConfig train = small_run();
  train.batch = 3;
  const int64_t budget = plan_memory(model, parameters, train).total_bytes();
  const Fit fit = largest_fit(model, parameters, train, {.device = budget});
  const auto bytes = [&](int64_t batch, int64_t seq) {
    TrainConfig tried = train;
    tried.batch = batch;
    tried.seq = seq;
    return plan_memory(model, parameters, tried).total_bytes();
  };
  EXPECT_GE(fit.batch, 3);
  EXPECT_LE(bytes(fit.batch, train.seq), budget);
  EXPECT_GT(bytes(fit.batch + 1, train.seq), budget);
  EXPECT_GE(fit.seq, 9);
  EXPECT_LE(bytes(train.batch, fit.seq), budget);
  EXPECT_EQ(largest_fit(model, parameters, train, {.device = 1000}).batch, 0);
}

// The budgets of the host and of the disk bound it too.
TEST(PlanMemory, FitStaysWithinEveryPlace) {
  const ModelConfig model = small_model();
  const ParameterList parameters(model);
  TrainConfig train = small_run();
  for (const char* homes : {"all+checkpoints", "all,checkpoints=nvme"}) {
    train.memory.homes = homes_from_string(homes);
    train.batch = 40;  // a batch fills some pages
    const SpaceBytes here = plan_memory(model, parameters, train).bytes();
    for (const Budget& budget : {Budget{.host = here.pinned + here.host}, Budget{.disk = here.disk},
                                 Budget{.device = here.device, .host = 2 * (here.pinned + here.host)}}) {
      if (!budget.given()) continue;
      const Fit fit = largest_fit(model, parameters, train, budget);
      const auto holds = [&](int64_t batch) {
        TrainConfig tried = train;
        tried.batch = batch;
        return budget.holds(plan_memory(model, parameters, tried).bytes());
      };
      EXPECT_GE(fit.batch, 40) << homes;
      EXPECT_TRUE(holds(fit.batch)) << homes;
      EXPECT_FALSE(holds(fit.batch + 1)) << homes;
    }
  }
}

// With states of 8 bits already: that is the first advice otherwise, below.
TEST(PlanMemory, AdviceForTheHostMovesOneKindAfterTheOther) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  TrainConfig train;
  train.batch = 4;
  train.memory.homes = homes_from_string("all+checkpoints");
  train.optimizer.kind = Optimizer::adamw8;
  train.optimizer.kind = Optimizer::adamw8;
  SpaceBytes last = plan_memory(model, parameters, train).bytes();
  const std::vector<HostAdvice> list = host_advice(model, parameters, train);
  ASSERT_EQ(list.size(), 4U);
  for (const HostAdvice& a : list) {
    EXPECT_LT(a.bytes.pinned + a.bytes.host, last.pinned + last.host) << a.flag;
    EXPECT_GT(a.bytes.disk, last.disk) << a.flag;
    EXPECT_EQ(a.bytes.device, last.device);
    last = a.bytes;
    train.memory.homes = homes_from_string(a.flag.substr(std::string("--offload ").size()));
    const MemoryPlan plan = plan_memory(model, parameters, train);
    EXPECT_EQ(plan.bytes(), a.bytes);
    EXPECT_EQ(plan.disk_step, a.step);
  }
  EXPECT_LT(last.pinned + last.host, int64_t{256} << 20);  // rings
  // Whoever updates what is on the host, nobody but the host updates what is on the disk.
  for (const Updater updater : {Updater::cpu, Updater::gpu, Updater::both}) {
    train.memory.updater = updater;
    train.memory.homes = homes_from_string("all+checkpoints");
    const std::vector<HostAdvice> by = host_advice(model, parameters, train);
    ASSERT_EQ(by.size(), 4U);
    EXPECT_EQ(by[0].flag.ends_with(" --update cpu"), updater != Updater::cpu) << by[0].flag;
    EXPECT_FALSE(by[1].flag.ends_with(" --update cpu")) << by[1].flag;
  }
  train.memory.updater = Updater::automatic;
  for (const char* homes : {"none", "weights=host", "states=host"}) {
    train.memory.homes = homes_from_string(homes);
    EXPECT_TRUE(host_advice(model, parameters, train).empty()) << homes;
  }
  train.memory.homes = homes_from_string("weights=host,checkpoints=host");
  EXPECT_EQ(host_advice(model, parameters, train).size(), 1U);
}

// Whatever is away already, by whomever it is updated.
TEST(PlanMemory, ThereIsAdviceForEveryHome) {
  const ModelConfig model = builtin_model("llama-25m");
  const ParameterList parameters(model);
  for (const char* homes : {"weights=host", "states=host", "gradients=host", "weights=host,states=host", "optimizer",
                            "all,states=nvme", "checkpoints=nvme"}) {
    TrainConfig train;
    train.memory.homes = homes_from_string(homes);
    EXPECT_FALSE(advice(model, parameters, train, {}).empty()) << homes;
    EXPECT_FALSE(advice(model, parameters, train, {DeviceKind::cuda, 0}).empty()) << homes;
  }
}

// Each piece of advice costs what a step of the run that takes it is predicted to take.
TEST(PlanMemory, AdviceSaysWhatAStepThenTakes) {
  const ModelConfig model = builtin_model("llama-25m");
  const ParameterList parameters(model);
  TrainConfig train;
  train.precision = precision_from_string("bf16");
  const Rates rates{.gemm = 1e12, .up = 1e9, .down = 1e9, .host_update = 1e8, .disk_read = 1e8, .disk_write = 1e8};
  const auto of = [&](const TrainConfig& asked) { return asked.precision.name == "bf16" ? rates : Rates{}; };
  const auto predicted = [&](const TrainConfig& changed) {
    return predict_step(model, plan_memory(model, parameters, changed), rates).seconds;
  };
  // A run that is meant for a GPU, planned with the CPU's kernels.
  const std::vector<Advice> list = advice(model, parameters, train, {DeviceKind::cuda, 0}, of);
  const auto find = [&](const std::string& flag) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const Advice& a) { return a.flag == flag; });
    EXPECT_NE(at, list.end()) << flag;
    return at == list.end() ? Advice{} : *at;
  };
  const double before = predicted(train);
  train.memory.recompute = recompute_from_string("block");
  EXPECT_EQ(find("--recompute block").seconds, predicted(train));
  EXPECT_GT(predicted(train), 1.1 * before);
  EXPECT_EQ(find("--precision bf16-sr").seconds, 0) << "its rates are not known";
  (void)find("--offload all+checkpoints");
  EXPECT_TRUE(advice(model, parameters, train, {}, of).size() < list.size()) << "on a CPU there is nothing to gain";

  train.optimizer.kind = Optimizer::adamw8;  // else that comes first
  train.memory.homes = homes_from_string("all");
  const HostAdvice disk = host_advice(model, parameters, train, of).at(0);
  EXPECT_EQ(disk.seconds, static_cast<double>(disk.step.read) / 1e8) << "the disk is what is full";
  EXPECT_GT(disk.seconds, predicted(train));
}

TEST(PlanMemory, AdviceForTheHostBeginsWithStatesInEightBits) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  TrainConfig train;
  train.memory.homes = homes_from_string("all");
  const SpaceBytes before = plan_memory(model, parameters, train).bytes();
  const HostAdvice first = host_advice(model, parameters, train).at(0);
  EXPECT_EQ(first.flag, "--optimizer adamw8");
  const int64_t saved = before.pinned + before.host - first.bytes.pinned - first.bytes.host;
  train.optimizer.kind = Optimizer::adamw8;
  EXPECT_EQ(plan_memory(model, parameters, train).bytes(), first.bytes);
  // All but the embedding and 4k of norms: two bytes and two scales for 256 elements instead of eight.
  const double coded = 1235814400.0 - 128256 * 2048;
  EXPECT_NEAR(static_cast<double>(saved), coded * (6 - 8.0 / 256), 1e6);
}

TEST(PlanMemory, AdviceSavesStepByStep) {
  const ModelConfig model = builtin_model("llama-25m");
  TrainConfig train;
  train.batch = 16;
  train.seq = 512;
  train.fused = fused_from_string("none");
  const ParameterList parameters(model);
  int64_t last = plan_memory(model, parameters, train).total_bytes();
  const std::vector<Advice> list = advice(model, parameters, train, {});
  ASSERT_GE(list.size(), 5u);
  EXPECT_EQ(list[0].flag, "--fused all");
  EXPECT_EQ(list[1].flag, "--recompute selective");
  for (const Advice& a : list) {
    if (a.instead) continue;
    EXPECT_LT(a.total_bytes, last) << a.flag;
    last = a.total_bytes;
  }
}

// In the order of the study: precision, offload, low rank, 8 bits, and then the disk (AdviceForTheHost…).
TEST(PlanMemory, AdviceNamesTheOptimizersInTheStudysOrder) {
  const ModelConfig model = builtin_model("llama-25m");
  const ParameterList parameters(model);
  TrainConfig train;
  train.seq = 64;
  train.batch = 1;
  std::vector<std::string> order;
  for (const Advice& a : advice(model, parameters, train, {})) {
    order.push_back(a.flag);
    EXPECT_EQ(a.instead, a.flag == "--optimizer adamw8") << a.flag;
    // Each with the bytes of a run that has it.
    if (!a.flag.starts_with("--optimizer")) continue;
    TrainConfig changed = train;
    changed.precision = precision_from_string("bf16-sr");
    changed.memory.recompute = recompute_from_string("block");
    changed.optimizer.kind = optimizer_from_string(a.flag.substr(12));
    EXPECT_EQ(plan_memory(model, parameters, changed).total_bytes(), a.total_bytes) << a.flag;
  }
  const auto place = [&](const char* flag) { return std::find(order.begin(), order.end(), flag) - order.begin(); };
  EXPECT_LT(place("--precision bf16-sr"), place("--optimizer apollo-mini"));
  EXPECT_EQ(place("--optimizer apollo-mini") + 1, place("--optimizer adamw8"));
  EXPECT_LT(place("--optimizer adamw8"), std::ssize(order));
  // Of one that is chosen already there is nothing to say, and adapters have none of low rank.
  for (const bool lora : {false, true}) {
    TrainConfig chosen = train;
    if (lora) chosen.lora = lora_from_string("r=4");
    if (!lora) chosen.optimizer.kind = Optimizer::apollo;
    const ParameterList theirs(model, chosen.lora);
    for (const Device meant : {Device{}, Device{DeviceKind::cuda, 0}}) {
      for (const Advice& a : advice(model, theirs, chosen, meant))
        EXPECT_FALSE(a.flag.starts_with("--optimizer apollo"));
    }
  }
  // Who has asked for both to update is told whom to ask instead.
  train.memory.homes = homes_from_string("optimizer");
  train.memory.updater = Updater::both;
  for (const Advice& a : advice(model, parameters, train, {})) {
    if (a.flag.starts_with("--optimizer apollo")) {
      EXPECT_EQ(a.flag, "--optimizer apollo-mini --update gpu");
    }
  }
}

// A flag replaces what was there before, so it has to name all of it.
TEST(PlanMemory, AdviceNamesTheStagesThatWereChosenAlready) {
  const ModelConfig model = builtin_model("llama-bytes-1m");
  const ParameterList parameters(model);
  for (const char* chosen : {"gate_up", "qkv,attention", "mlp", "mlp,norm1"}) {
    TrainConfig train;
    train.memory.recompute = recompute_from_string(chosen);
    train.memory.mlp_tile = std::string_view(chosen).starts_with("mlp") ? 64 : 0;
    const Advice first = advice(model, parameters, train, {}).at(0);
    ASSERT_TRUE(first.flag.starts_with("--recompute ")) << first.flag;
    const std::string stages = first.flag.substr(12);
    if (train.memory.mlp_tile > 0) {
      EXPECT_EQ(stages, "norm1,norm2,mlp");
    }
    train.memory.recompute = recompute_from_string(stages);
    EXPECT_EQ(plan_memory(model, parameters, train).total_bytes(), first.total_bytes) << chosen;
  }
}

// With tiles the MLP has no stage of that name, and the flag would be refused.
TEST(PlanMemory, AdviceOfTilesLeavesNoStageThatIsGone) {
  ModelConfig model = builtin_model("llama-25m");
  model.vocab = 8000;  // so that the peak is in the MLP, not in the loss
  TrainConfig train;
  train.batch = 8;
  train.seq = 1024;
  train.precision = precision_from_string("bf16");
  std::string stages = "norm1,qkv,attention,o_proj,norm2,gate_up,activation,down";  // "block" saves no more than that
  train.memory.recompute = recompute_from_string(stages);
  bool tiles = false;
  for (const Advice& a : advice(model, ParameterList(model), train, {})) {
    if (const size_t at = a.flag.find("--recompute "); at != std::string::npos) stages = a.flag.substr(at + 12);
    ASSERT_NE(stages, "block");
    tiles = tiles || a.flag.find("--mlp-tile ") != std::string::npos;
    if (tiles) {
      EXPECT_TRUE(stages.starts_with("norm1,qkv,attention,o_proj,norm2,mlp")) << stages;
    }
  }
  EXPECT_TRUE(tiles);
}

TEST(PlanMemory, FitOfAModelWithMorePositionsThanAnyRunTakes) {
  ModelConfig model = small_model();
  model.max_position = int64_t{1} << 30;
  const Fit fit = largest_fit(model, ParameterList(model), small_run(), {.device = int64_t{1} << 60});
  EXPECT_EQ(fit.seq, kLongestSequence);
}

TEST(PlanMemory, NonsenseIsRefused) {
  const ModelConfig model = small_model();
  const ParameterList parameters(model);
  TrainConfig train = small_run();
  train.seq = 65;
  EXPECT_THROW((void)plan_memory(model, parameters, train), Error);
  train.seq = 0;
  EXPECT_THROW((void)plan_memory(model, parameters, train), Error);
  ModelConfig windowed = model;
  windowed.sliding_window = 8;
  train.seq = 9;
  EXPECT_THROW((void)plan_memory(windowed, parameters, train), Error);
  train.seq = 8;
  EXPECT_NO_THROW((void)plan_memory(windowed, parameters, train));
  ModelConfig deeper = model;
  deeper.layers = 3;
  expect_error([&] { (void)plan_memory(deeper, parameters, train); }, ErrorCode::invalid_argument, "another model");
}

TEST(PlanMemory, SettingsThatMakeNoSenseAreRefused) {
  const ModelConfig model = small_model();
  const ParameterList parameters(model);
  const auto refuse = [&](auto change, const char* text) {
    TrainConfig train = small_run();
    change(train);
    expect_error([&] { (void)plan_memory(model, parameters, train); }, ErrorCode::invalid_argument, text);
  };
  refuse([](auto& t) { t.optimizer.lr = std::nan(""); }, "lr");
  refuse([](auto& t) { t.schedule.decay = static_cast<Decay>(9); }, "decay");
  refuse([](auto& t) { t.ignore_index = int64_t{1} << 40; }, "ignore index");
  refuse([](auto& t) { t.precision.loss_scale.initial = 0; }, "loss scale");
  refuse([](auto& t) { t.precision.loss_scale.initial = std::nan(""); }, "loss scale");
  refuse([](auto& t) { t.precision.loss_scale.window = 0; }, "window");
  refuse([](auto& t) { t.precision.loss_scale.hysteresis = -1; }, "hysteresis");
  refuse([](auto& t) { t.threads = -1; }, "'threads'");
  refuse([](auto& t) { t.device.kind = static_cast<DeviceKind>(9); }, "'device.kind'");
}

// Some settings only an op refuses, in the middle of the walk, when gradients are alive.
TEST(PlanMemory, AnErrorOnTheWayLeavesNothingBehind) {
  const ModelConfig model = small_model();
  TrainConfig train = small_run();
  train.precision.m = DType::f16;
  expect_error([&] { (void)plan_memory(model, ParameterList(model), train); }, ErrorCode::invalid_argument,
               "'m' has the wrong type");
}

}  // namespace
}  // namespace tigon::test
