#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/model/parameters.hpp"
#include "tigon/ops/unfused.hpp"

// A decoder block as a list of stages. Each stage is a forward/backward pair that says what it reads and writes; which
// stages run again before backward, because the policy dropped what they wrote, follows from those lists. A variant of
// the block (QK-norm, a tiled MLP) is another stage in the list.
namespace tigon {

// The values that live inside a block. With T = batch·seq tokens:
enum class Slot : uint8_t {
  in_mid,    // [T, hidden] the terms of x, as the block below leaves them
  in_out,    // [T, hidden]
  x,         // [T, hidden] the block's input: what a checkpoint of the layer is
  normed1,   // [T, hidden]
  rstd1,     // [T] f32
  qkv,       // [T, (heads + 2·kv_heads)·D], q and k rotated
  q,         // [T, heads·D]: instead of qkv where q and k are normed: normed and rotated
  k,         // [T, kv_heads·D]
  v,         // [T, kv_heads·D]
  q_raw,     // [T, heads·D] before the norm
  k_raw,     // [T, kv_heads·D]
  q_rstd,    // [T·heads] f32
  k_rstd,    // [T·kv_heads] f32
  attn,      // [T, heads·D]
  lse,       // [batch, heads, seq] f32
  attn_out,  // [T, hidden] what attention adds to the stream
  mid,       // [T, hidden] x + attn_out
  normed2,   // [T, hidden]
  rstd2,     // [T] f32
  gate_up,   // [T, 2·intermediate]
  act,       // [T, intermediate]
  out,       // [T, hidden] what the MLP adds to mid; the next block's norm adds it
  // No tensors: what the unfused form of an op keeps on its tape.
  norm1_tape,
  q_tape,
  k_tape,
  norm2_tape,
  act_tape,
  count
};
inline constexpr int kSlotCount = static_cast<int>(Slot::count);
inline constexpr int kFirstTape = static_cast<int>(Slot::norm1_tape);
std::string_view to_string(Slot slot) noexcept;

class SlotSet {
 public:
  constexpr SlotSet() = default;
  constexpr SlotSet(std::initializer_list<Slot> slots) {
    for (const Slot slot : slots) bits_ |= bit(slot);
  }
  constexpr bool contains(Slot slot) const { return (bits_ & bit(slot)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr SlotSet operator|(SlotSet other) const { return SlotSet(bits_ | other.bits_); }
  constexpr SlotSet operator&(SlotSet other) const { return SlotSet(bits_ & other.bits_); }
  constexpr SlotSet operator-(SlotSet other) const { return SlotSet(bits_ & ~other.bits_); }
  constexpr SlotSet& operator|=(SlotSet other) { return *this = *this | other; }
  friend constexpr bool operator==(SlotSet, SlotSet) = default;

 private:
  constexpr explicit SlotSet(uint32_t bits) : bits_(bits) {}
  static constexpr uint32_t bit(Slot slot) { return uint32_t{1} << static_cast<int>(slot); }
  uint32_t bits_ = 0;
};

// The stages by name, in order. `mlp` stands for the last three where the MLP runs in tiles of tokens.
enum class StageId : uint8_t { norm1, qkv, attention, o_proj, norm2, gate_up, activation, down, mlp };
inline constexpr int kStageCount = 9;
std::string_view to_string(StageId stage) noexcept;
StageId stage_from_string(std::string_view name);

// Which stages drop what they wrote, to be run again before backward: a bit per StageId.
using StageMask = uint32_t;
constexpr StageMask stage_bit(StageId stage) { return StageMask{1} << static_cast<int>(stage); }

// Which ops run in their fused form.
struct FusedOps {
  bool rope = true;
  bool swiglu = true;  // geglu as well
  bool rmsnorm = true;
  bool flce = true;  // fused linear cross entropy
};

// What is the same for every block of a run.
struct BlockShape {
  ModelConfig config{};
  int64_t batch = 1;
  int64_t seq = 1;
  DType dtype = DType::f32;
  FusedOps fused{};
  int64_t mlp_tile = 0;  // tokens at a time through the MLP; 0: all
  bool deterministic = true;
  LoraConfig lora{};
  bool cached = false;  // generation: keys and values of the tokens before are in a KeyValueCache; forward only

  // Whether the gradient of a weight is wanted, or of its adapter.
  bool trains(BlockWeight weight) const { return !lora.any() || !lora_parts(config, lora, weight).empty(); }
  int64_t tokens() const { return batch * seq; }
};

using BlockTensors = std::array<Tensor, kBlockWeightCount>;

// Where a weight's gradient goes. Gradients are asked for when a stage's backward is about to write them, and not
// before: until then their memory serves others.
struct Gradient {
  Tensor tensor{};
  bool accumulate = false;
};
class GradientSource {
 public:
  virtual ~GradientSource() = default;
  virtual Gradient gradient(BlockWeight weight) = 0;
};

// The values of one block that are alive, and the gradients of some of them during backward.
struct BlockValues {
  std::array<OwnedTensor, kSlotCount> value;
  std::array<OwnedTensor, kSlotCount> grad;
  std::array<ops::unfused::Tape, kSlotCount - kFirstTape> tapes;

  OwnedTensor& operator[](Slot slot) { return value[static_cast<size_t>(slot)]; }
  OwnedTensor& d(Slot slot) { return grad[static_cast<size_t>(slot)]; }
  ops::unfused::Tape& tape(Slot slot) { return tapes[static_cast<size_t>(static_cast<int>(slot) - kFirstTape)]; }
  bool has(Slot slot) const { return value[static_cast<size_t>(slot)].view.present(); }
};

// The stream as a block leaves it: mid + out, not added yet. The next norm adds them. A mid that its block keeps for
// backward is only a view here.
struct Stream {
  OwnedTensor mid;
  OwnedTensor out;
};

// How often each stage's forward ran: what recompute costs.
using StageRuns = std::array<int64_t, kStageCount>;

// What one layer remembers of the tokens before those of a pass, to which attention adds its own. A pass has either
// several tokens of sequences that have none yet, or one more of each.
struct KeyValueCache {
  Tensor keys{};                       // [batch, kv_heads, context, D], rotated; zeros where nothing is yet
  Tensor values{};                     // the same
  std::span<const int64_t> lengths{};  // how many tokens each sequence has before the pass
};

// One pass through one block.
struct BlockRun {
  const Context& ctx;
  const BlockShape& shape;
  int64_t layer = 0;
  const BlockTensors& weight;
  BlockValues& values;
  GradientSource* gradients = nullptr;
  const KeyValueCache* cache = nullptr;  // where the shape says so
  Tensor positions{};                    // [batch, seq] i32: where the tokens stand; absent: each row's from 0 on
  Tensor starts{};  // [batch, seq] i32: where in its row each token's document begins; absent: a row is one

  const Tensor& w(BlockWeight which) const { return weight[static_cast<size_t>(which)]; }
  OwnedTensor make(Slot slot, bool gradient) const;
  OwnedTensor& make_grad(Slot slot) const { return values.d(slot) = make(slot, true); }
};

struct Stage {
  StageId id;
  SlotSet reads;   // those of them that are there
  SlotSet writes;  // those that are not there yet
  SlotSet backward_reads;
  SlotSet backward_makes{};  // there after backward, even where nobody kept it
  SlotSet grad_reads;        // whose gradients
  void (*forward)(const BlockRun& run);
  void (*backward)(const BlockRun& run);
  // The weight's gradient, where it waits for what the backward of an earlier stage makes.
  SlotSet dweight_reads{};
  void (*dweight)(const BlockRun& run) = nullptr;
};

// The list for this shape.
std::vector<Stage> block_stages(const BlockShape& shape);

class Block {
 public:
  // `recompute` names the stages whose results are dropped after forward.
  Block(const BlockShape& shape, StageMask recompute);

  const BlockShape& shape() const noexcept { return shape_; }
  SlotSet kept() const noexcept { return kept_; }
  // The stages that run again before backward.
  StageMask rerun() const noexcept { return rerun_; }

  // From x, or from the stream that becomes x. Keeps what backward will need (nothing with `for_backward` false).
  Stream forward(const BlockRun& run, Stream below, bool for_backward = true) const;
  // Runs the stages again that backward needs.
  void restore(const BlockRun& run) const;
  // From the gradient of the next block's x to that of this one's. Everything in run.values dies.
  OwnedTensor backward(const BlockRun& run, OwnedTensor dnext) const;

 private:
  void run_stages(const BlockRun& run, StageMask which, SlotSet wanted_after) const;

  BlockShape shape_;
  std::vector<Stage> stages_;
  SlotSet kept_;
  SlotSet for_backward_;  // what backward reads, of all stages
  SlotSet for_dweight_;   // what only the gradients of weights read
  StageMask rerun_ = 0;
};

}  // namespace tigon
