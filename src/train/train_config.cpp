#include "tigon/train/train_config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tigon/core/error.hpp"
#include "train/check_range.hpp"

namespace tigon {

namespace {

constexpr StageMask kSelective = stage_bit(StageId::norm1) | stage_bit(StageId::norm2) | stage_bit(StageId::activation);
constexpr StageMask kMlpParts = stage_bit(StageId::gate_up) | stage_bit(StageId::activation) | stage_bit(StageId::down);
constexpr StageMask kBlock = (StageMask{1} << kStageCount) - 1;

// Calls f for each name between commas.
template <class F>
void for_names(std::string_view text, const F& f) {
  while (true) {
    const size_t comma = text.find(',');
    f(text.substr(0, comma));
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

struct Switch {
  const char* name;
  bool FusedOps::*member;
};
constexpr Switch kSwitches[] = {{"rope", &FusedOps::rope},
                                {"swiglu", &FusedOps::swiglu},
                                {"rmsnorm", &FusedOps::rmsnorm},
                                {"flce", &FusedOps::flce}};

// The MLP is three stages, or one with tiles: a name that belongs to the other form would change nothing.
void check_stages(const MemoryPolicy& memory) {
  const std::string text = recompute_to_string(memory.recompute);
  const bool tiled = memory.mlp_tile > 0, named = text != "none" && text != "selective" && text != "block";
  const StageMask other = tiled ? kMlpParts : stage_bit(StageId::mlp);
  if (!named || (memory.recompute & other) == 0) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = "--recompute",
               .what = tiled ? "with --mlp-tile the MLP is one stage" : "without --mlp-tile the MLP is three stages",
               .expected = tiled ? "mlp" : "some of gate_up, activation, down",
               .got = "'" + text + "'"});
}

void check_rank(const OptimizerOptions& options) {
  check_range("rank", static_cast<double>(options.rank), 0, 1 << 20);
  check_range("gap", static_cast<double>(options.gap), 0, 1e9);
  check_range("scale", options.scale, 0, 1e9);
  if (is_low_rank(options.kind) || (options.rank == 0 && options.gap == 0 && options.scale == 0)) return;
  throw Error(ErrorCode::invalid_argument, {.where = "--rank, --gap and --scale",
                                            .what = "they belong to optimizers of low rank",
                                            .expected = "--optimizer apollo, apollo-mini or galore",
                                            .got = std::string(to_string(options.kind))});
}

}  // namespace

StageMask recompute_from_string(std::string_view text) {
  if (text == "none") return 0;
  if (text == "selective") return kSelective;
  if (text == "block") return kBlock;
  StageMask mask = 0;
  for_names(text, [&](std::string_view name) { mask |= stage_bit(stage_from_string(name)); });
  return mask;
}

std::string recompute_to_string(StageMask mask) {
  if (mask == 0) return "none";
  if (mask == kSelective) return "selective";
  if (mask == kBlock) return "block";
  std::string text;
  for (int s = 0; s < kStageCount; ++s) {
    if (mask & stage_bit(static_cast<StageId>(s)))
      text += (text.empty() ? "" : ",") + std::string(to_string(static_cast<StageId>(s)));
  }
  return text;
}

FusedOps fused_from_string(std::string_view text) {
  if (text == "all") return {};
  FusedOps fused{.rope = false, .swiglu = false, .rmsnorm = false, .flce = false};
  if (text == "none") return fused;
  for_names(text, [&](std::string_view name) {
    for (const Switch& s : kSwitches) {
      if (name == s.name) {
        fused.*s.member = true;
        return;
      }
    }
    throw Error(ErrorCode::invalid_argument, {.where = "--fused",
                                              .what = "there is no such op to fuse",
                                              .expected = "all, none, or some of rope,swiglu,rmsnorm,flce",
                                              .got = "'" + std::string(name) + "'"});
  });
  return fused;
}

std::string fused_to_string(const FusedOps& fused) {
  std::string text;
  for (const Switch& s : kSwitches) {
    if (fused.*s.member) text += (text.empty() ? "" : ",") + std::string(s.name);
  }
  return text.empty() ? "none" : text == "rope,swiglu,rmsnorm,flce" ? "all" : text;
}

Decay decay_from_string(std::string_view text) {
  if (text == "constant") return Decay::constant;
  if (text == "linear") return Decay::linear;
  if (text == "cosine") return Decay::cosine;
  throw Error(ErrorCode::invalid_argument, {.where = "schedule",
                                            .what = "there is no such schedule",
                                            .expected = "constant, linear or cosine",
                                            .got = "'" + std::string(text) + "'"});
}

double schedule_factor(const Schedule& schedule, int64_t step, int64_t steps) {
  if (step <= schedule.warmup) return static_cast<double>(step) / static_cast<double>(schedule.warmup);
  if (schedule.decay == Decay::constant) return 1.0;
  const int64_t length = std::max<int64_t>(1, steps - schedule.warmup);
  const double done = std::min(1.0, static_cast<double>(step - schedule.warmup) / static_cast<double>(length));
  const double down = schedule.decay == Decay::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return schedule.floor + (1.0 - schedule.floor) * down;
}

void check_train_config(const TrainConfig& train, const ModelConfig& model) {
  check_range("batch", static_cast<double>(train.batch), 1, 1 << 20);
  check_range("seq", static_cast<double>(train.seq), 1, kLongestSequence);
  check_range("accumulate", static_cast<double>(train.accumulate), 1, kMostMicroBatches);
  check_range("steps", static_cast<double>(train.steps), 0, 1e12);
  check_range("lr", train.optimizer.lr, 0, 1e3);
  check_range("beta1", train.optimizer.beta1, 0, 0.999999);
  check_range("beta2", train.optimizer.beta2, 0, 0.99999999);
  check_range("eps", train.optimizer.eps, 0, 1);
  check_range("weight decay", train.optimizer.weight_decay, 0, 100);
  check_range("clip", train.clip, 0, 1e9);
  check_rank(train.optimizer);
  check_range("warm-up", static_cast<double>(train.schedule.warmup), 0, 1e12);
  check_range("schedule's decay", static_cast<double>(train.schedule.decay), 0, static_cast<double>(Decay::cosine));
  check_range("schedule's floor", train.schedule.floor, 0, 1);
  check_range("MLP tile", static_cast<double>(train.memory.mlp_tile), 0, 1e12);
  const LossScaleRule& scale = train.precision.loss_scale;
  check_range("loss scale", scale.initial, 1, 0x1p60);
  check_range("loss scale's window", static_cast<double>(scale.window), 1, 1e12);
  check_range("loss scale's hysteresis", static_cast<double>(scale.hysteresis), 1, 1e12);
  check_ignore_index(train.ignore_index);
  check_range("elements of a piece on its way to the disk", static_cast<double>(train.memory.disk.piece), kDiskUnit,
              0x1p30);
  if (train.memory.disk.piece % kDiskUnit != 0) {
    throw Error(ErrorCode::invalid_argument, {.where = "pieces on their way to the disk",
                                              .what = "they would not be whole pages",
                                              .expected = "a multiple of " + std::to_string(kDiskUnit) + " elements",
                                              .got = std::to_string(train.memory.disk.piece)});
  }
  const bool moves = train.memory.moves_updates();  // then parts are updated early wherever they may be
  if (train.memory.update_early && !moves &&
      (train.clip != 0 || train.accumulate > 1 || scale.dynamic || scale.initial != 1)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "early updates",
                 .what = "an update in the middle of backward cannot wait for the whole gradient",
                 .expected = "no clipping, one micro-batch, and no loss scale",
                 .fix = "Add --clip 0 --accumulate 1, and use another precision than fp16."});
  }
  check_stages(train.memory);
  if (train.base == BaseFormat::nf4 && !train.lora.any()) {
    throw Error(ErrorCode::invalid_argument, {.where = "--base nf4",
                                              .what = "weights in NF4 cannot be trained, only stand beside adapters",
                                              .fix = "Add --lora, or leave --base out."});
  }
  if (train.memory.update_early && moves && train.memory.homes.gradients == Home::device) {
    throw Error(
        ErrorCode::invalid_argument,
        {.where = "--update-early",
         .what = "an update that moves weights or states goes on beside backward, which would overwrite gradients",
         .expected = "gradients=host in --offload, where one layer's are on the device at a time",
         .got = to_string(train.memory.homes)});
  }
  (void)settled_updater(train.memory.updater, train.memory.homes, train.device, train.optimizer.kind);
  check_range("piece of an update", static_cast<double>(train.memory.update_piece), 1, 0x1p40);
  check_range("smallest matrix in 8 bits", static_cast<double>(train.optimizer.smallest_in_8_bits), 1, 0x1p60);
  if (train.memory.update_piece % update_unit(train) != 0) {
    throw Error(ErrorCode::invalid_argument, {.where = "piece of an update",
                                              .what = "it would cut a block of elements that share a scale",
                                              .expected = "a multiple of " + std::to_string(update_unit(train)),
                                              .got = std::to_string(train.memory.update_piece)});
  }
  const int64_t longest = model.longest_sequence();
  check_range("text that is continued", static_cast<double>(train.speaks), 0, static_cast<double>(longest));
  if (train.speaks > 0 && train.streams_vocabulary()) {
    throw Error(ErrorCode::unsupported, {.where = "--sample-every",
                                         .what = "it needs the head as a whole, which --lean-loss has in panels alone",
                                         .fix = "Add --save-every, and let a checkpoint speak with tigon sample."});
  }
  if (train.seq > longest) {
    throw Error(ErrorCode::unsupported,
                {.where = "seq",
                 .what = longest < model.max_position
                             ? "the sequence is longer than the model's sliding window, and attention within a window "
                               "is not supported"
                             : "the sequence is longer than the model's positions",
                 .expected = "at most " + std::to_string(longest),
                 .got = std::to_string(train.seq)});
  }
}

}  // namespace tigon
