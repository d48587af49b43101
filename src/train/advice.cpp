#include "tigon/train/advice.hpp"

#include <algorithm>

namespace tigon {

namespace {

// The stages by name, as --recompute takes them. With tiles the MLP is one stage, without them three.
StageMask nameable(StageMask mask, bool tiled) {
  const std::string text = recompute_to_string(mask);
  if (text == "none" || text == "selective" || text == "block") return mask;
  const StageMask parts = stage_bit(StageId::gate_up) | stage_bit(StageId::activation) | stage_bit(StageId::down);
  if (tiled && (mask & parts) == parts) mask |= stage_bit(StageId::mlp);
  return mask & ~(tiled ? parts : stage_bit(StageId::mlp));
}

double seconds_of(const ModelConfig& model, const MemoryPlan& plan, const RatesOf& rates) {
  return rates ? predict_step(model, plan, rates(plan.train)).seconds : 0.0;
}

}  // namespace

std::vector<Advice> advice(const ModelConfig& model, const ParameterList& parameters, TrainConfig train, Device meant,
                           const RatesOf& rates) {
  std::vector<Advice> list;
  int64_t least = plan_memory(model, parameters, train).total_bytes();
  // Takes a change up if it saves anything here, or names one that would, instead of the last.
  const auto suggest_of = [&](const ParameterList& list_of, const TrainConfig& changed, std::string flag,
                              std::string why, bool instead, int64_t before) {
    const MemoryPlan plan = plan_memory(model, list_of, changed);
    if (plan.total_bytes() >= before) return;
    if (!instead) {
      least = plan.total_bytes();
      train = changed;
    }
    list.push_back({.flag = std::move(flag),
                    .why = std::move(why),
                    .total_bytes = plan.total_bytes(),
                    .bytes = plan.bytes(),
                    .seconds = seconds_of(model, plan, rates),
                    .instead = instead});
  };
  const auto suggest = [&](const TrainConfig& changed, std::string flag, std::string why) {
    suggest_of(parameters, changed, std::move(flag), std::move(why), false, least);
  };
  const Updater asked = train.memory.updater;
  const OptimizerOptions asked_optimizer = train.optimizer;
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
  const bool asked_away = train.memory.homes.any_away();
  const int64_t least_here = least;
  const auto offload = [&](const char* what, const char* why) {
    TrainConfig changed = train;
    changed.memory.homes = homes_from_string(what);
    changed.memory.updater = settled_updater(train.memory.updater, changed.memory.homes, meant, train.optimizer.kind);
    suggest(changed, std::string("--offload ") + what, why);
  };
  if (meant.kind == DeviceKind::cuda && !train.memory.homes.any_away()) {
    offload("optimizer", "states and gradients on the host, updated behind the next forward");
    offload("all", "weights too: they come twice a step, which large batches hide");
    offload("all+checkpoints", "each layer's input as well");
  }
  if (train.optimizer.kind == Optimizer::adamw) {
    TrainConfig low_rank = train, coded = train;
    const int64_t before = least;
    low_rank.optimizer.kind = Optimizer::apollo_mini;
    low_rank.memory.updater = settled_updater(asked == Updater::both ? Updater::gpu : asked, train.memory.homes, meant,
                                              low_rank.optimizer.kind);
    if (!train.lora.any()) {
      suggest(low_rank, std::string("--optimizer apollo-mini") + (asked == Updater::both ? " --update gpu" : ""),
              "of a matrix m and v of one number a row, not AdamW; apollo and galore keep more");
    }
    coded.optimizer.kind = Optimizer::adamw8;
    suggest_of(parameters, coded, "--optimizer adamw8",
               "AdamW's m and v in 8 bits each, but of the embedding and of what is small",
               train.optimizer.kind != Optimizer::adamw, before);
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
  if (!train.memory.update_early && train.accumulate == 1 && !train.memory.moves_updates()) {
    TrainConfig early = train;
    early.memory.update_early = true;
    early.clip = 0;
    suggest(early, "--update-early --clip 0", "one layer's gradients at a time, updated in backward; no clipping");
  }
  if (train.batch > 1 && !train.memory.update_early && train.accumulate * train.batch <= kMostMicroBatches) {
    TrainConfig micro = train;
    micro.accumulate *= micro.batch;
    micro.batch = 1;
    // Else what is away would move with each of them.
    const bool by_layers = train.memory.moves_updates();
    if (by_layers) micro.memory.order = Order::layers;
    suggest(micro, "--batch 1 --accumulate " + std::to_string(micro.accumulate) + (by_layers ? " --order layers" : ""),
            "the same step in micro-batches");
  }
  // Beyond the study's order, since these train less; and then there is little to offload.
  std::string and_rest;
  if (train.memory.homes.any_away() && !asked_away) {
    train.memory.homes = {};
    train.memory.updater = settled_updater(Updater::automatic, {}, meant);
    least = least_here;
    and_rest = " --offload none";
  }
  if (is_low_rank(asked_optimizer.kind)) return list;  // beside adapters there is none
  if (is_low_rank(train.optimizer.kind)) {
    train.optimizer = asked_optimizer;
    and_rest += " --optimizer " + std::string(to_string(asked_optimizer.kind));
  }
  const bool trains_all = !train.lora.any();
  TrainConfig adapted = train;
  if (trains_all) adapted.lora = lora_from_string("r=16");
  const ParameterList with_adapters(model, adapted.lora);
  if (trains_all) {
    suggest_of(with_adapters, adapted, "--lora r=16" + and_rest, "LoRA: adapters beside a frozen model; it learns less",
               false, least);
  }
  if (train.base == BaseFormat::full) {
    adapted.base = BaseFormat::nf4;
    const bool said = !trains_all || train.lora.any();
    suggest_of(with_adapters, adapted, said ? "--base nf4" : "--lora r=16 --base nf4" + and_rest,
               "QLoRA: the frozen blocks in 4.13 bits a weight", false, least);
  }
  return list;
}

std::vector<HostAdvice> host_advice(const ModelConfig& model, const ParameterList& parameters, TrainConfig train,
                                    const RatesOf& rates) {
  std::vector<HostAdvice> list;
  Homes& homes = train.memory.homes;
  const auto suggest = [&](std::string flag) {
    const MemoryPlan plan = plan_memory(model, parameters, train);
    list.push_back({.flag = std::move(flag),
                    .bytes = plan.bytes(),
                    .step = plan.disk_step,
                    .seconds = seconds_of(model, plan, rates)});
  };
  if (homes.states == Home::host && train.optimizer.kind == Optimizer::adamw) {
    train.optimizer.kind = Optimizer::adamw8;
    suggest("--optimizer adamw8");
  }
  // What is on the disk is updated by the host, which has to have states and gradients.
  const bool updated = homes.states != Home::device && homes.gradients != Home::device;
  // The largest first, and last what moves the most.
  for (Home* home : {&homes.states, &homes.layer_inputs, &homes.gradients, &homes.weights}) {
    if (*home != Home::host || (!updated && home != &homes.layer_inputs)) continue;
    *home = Home::nvme;
    std::string flag = "--offload " + to_string(homes);
    if (home != &homes.layer_inputs) {
      if (device_updates(train.memory.updater)) flag += " --update cpu";  // who was asked to may not
      train.memory.updater = Updater::cpu;
    }
    suggest(std::move(flag));
  }
  return list;
}

}  // namespace tigon
