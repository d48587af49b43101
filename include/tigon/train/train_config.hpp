#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tigon/model/block.hpp"
#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "tigon/train/base_format.hpp"
#include "tigon/train/disk_options.hpp"
#include "tigon/train/homes.hpp"
#include "tigon/train/optimizer.hpp"
#include "tigon/train/precision.hpp"
#include "tigon/train/updater.hpp"

namespace tigon {

// Where bytes live, as far as a step decides it.
struct MemoryPolicy {
  StageMask recompute = 0;  // the stages that drop their results in forward and run again in backward
  int64_t mlp_tile = 0;     // tokens at a time through the MLP; 0: all
  ops::ChunkRule chunk{};   // of fused linear cross entropy
  // Each layer's weights are updated as soon as its gradient is complete, which then dies: one layer's gradients exist
  // at a time. Only without clipping, which needs all of them at once, and with one micro-batch.
  bool update_early = false;
  Homes homes{};
  Updater updater = Updater::automatic;
  // Elements of a parameter that are on the device at a time to be updated: a multiple of update_unit().
  int64_t update_piece = int64_t{1} << 21;
  DiskOptions disk{};  // of those that are there
  Order order = Order::batches;

  // Whether updates move something, beside the streams of a step; else they are the end of a step on the device.
  bool moves_updates() const {
    return homes.weights != Home::device || homes.gradients != Home::device || homes.states != Home::device;
  }
};

// "none"; "selective", everything that costs no product; "block", everything but each layer's input; or stages by name,
// "norm1,activation".
StageMask recompute_from_string(std::string_view text);
std::string recompute_to_string(StageMask mask);
// "all", "none", or some of "rope,swiglu,rmsnorm,flce".
FusedOps fused_from_string(std::string_view text);
std::string fused_to_string(const FusedOps& fused);

enum class Decay : int32_t { constant, linear, cosine };
Decay decay_from_string(std::string_view text);

// The factor of the learning rate: up from 0 over `warmup` steps, then down to `floor` at the last step.
struct Schedule {
  Decay decay = Decay::cosine;
  int64_t warmup = 0;
  double floor = 0.1;  // of the peak
};
// For step 1, 2, … of `steps`.
double schedule_factor(const Schedule& schedule, int64_t step, int64_t steps);

constexpr int64_t kMostMicroBatches = 1 << 16;  // of a step
constexpr int64_t kLongestSequence = 1 << 24;   // of any model

// A training run. One step is `accumulate` micro-batches of [batch, seq] tokens.
struct TrainConfig {
  Device device{};
  int threads = 0;  // CPU threads, 0: all
  int64_t batch = 8;
  int64_t seq = 256;
  int64_t accumulate = 1;
  int64_t steps = 100;
  Precision precision{};
  MemoryPolicy memory{};
  FusedOps fused{};
  OptimizerOptions optimizer{};
  Schedule schedule{};
  double clip = 1.0;  // the largest norm of the gradient; 0: any
  uint64_t seed = 1;
  int64_t ignore_index = -100;
  bool evaluates = false;        // whether memory for evaluation belongs to the plan
  bool documents_apart = false;  // a token sees those of its own document alone (TokenBatch::starts)
  // The longest text, in tokens, that Trainer::next_token continues; its memory belongs to the plan. 0: none.
  int64_t speaks = 0;
  bool deterministic = true;
  LoraConfig lora{};                   // adapters beside a frozen model; else all of it is trained
  BaseFormat base = BaseFormat::full;  // of that model

  bool in_nf4(const Parameter& parameter) const { return base == BaseFormat::nf4 && parameter.product; }
  int64_t tokens() const { return batch * seq; }
  // Whether a step's micro-batches take turns with all layers, and how many of them a layer takes at once.
  bool turns() const { return accumulate > 1 && memory.order == Order::batches; }
  int64_t micros_at_once() const { return turns() ? 1 : accumulate; }
  // Whether embedding and head, whose home is the host, are never whole on the device: the lean loss takes the head in
  // panels, and the embedding needs the rows of a micro-batch's tokens alone. Not beside adapters.
  bool streams_vocabulary() const {
    return memory.chunk.lean && fused.flce && memory.homes.weights == Home::host &&
           memory.homes.gradients == Home::host && !lora.any();
  }
};

// Throws Error where a value makes no sense, or the model does not allow it (a sequence longer than its window).
void check_train_config(const TrainConfig& train, const ModelConfig& model);

}  // namespace tigon
