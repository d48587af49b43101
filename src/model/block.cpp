// How a list of stages runs: forward, again where something was dropped, and backward; and who dies when.
#include "tigon/model/block.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"
#include "tigon/core/scope.hpp"

namespace tigon {

namespace {

constexpr std::array<std::string_view, kSlotCount> kSlotNames = {
    "in_mid", "in_out",  "x",      "normed1", "rstd1",      "qkv",    "q",        "k",          "v",
    "q_raw",  "k_raw",   "q_rstd", "k_rstd",  "attn",       "lse",    "attn_out", "mid",        "normed2",
    "rstd2",  "gate_up", "act",    "out",     "norm1_tape", "q_tape", "k_tape",   "norm2_tape", "act_tape"};
constexpr std::array<std::string_view, kStageCount> kStageNames = {
    "norm1", "qkv", "attention", "o_proj", "norm2", "gate_up", "activation", "down", "mlp"};

bool is_tape(Slot slot) { return static_cast<int>(slot) >= kFirstTape; }

void release(BlockValues& values, Slot slot) {
  if (is_tape(slot)) {
    values.tape(slot).clear();
  } else {
    values[slot].reset();
  }
}

template <class F>
void for_slots(const F& f) {
  for (int s = 0; s < kSlotCount; ++s) f(static_cast<Slot>(s));
}

}  // namespace

std::string_view to_string(Slot slot) noexcept { return kSlotNames[static_cast<size_t>(slot)]; }
std::string_view to_string(StageId stage) noexcept { return kStageNames[static_cast<size_t>(stage)]; }

StageId stage_from_string(std::string_view name) {
  std::string known;
  for (int s = 0; s < kStageCount; ++s) {
    if (kStageNames[static_cast<size_t>(s)] == name) return static_cast<StageId>(s);
    known += (s ? ", " : "") + std::string(kStageNames[static_cast<size_t>(s)]);
  }
  throw Error(
      ErrorCode::invalid_argument,
      {.where = "stage", .what = "a block has no such stage", .expected = known, .got = "'" + std::string(name) + "'"});
}

OwnedTensor BlockRun::make(Slot slot, bool gradient) const {
  const ModelConfig& c = shape.config;
  const int64_t tokens = shape.tokens();
  const std::string name =
      "layers." + std::to_string(layer) + (gradient ? ".d" : ".") + std::string(kSlotNames[static_cast<size_t>(slot)]);
  const MemoryClass kind = slot == Slot::x && !gradient ? MemoryClass::layer_inputs : MemoryClass::activations;
  const auto rows = [&](int64_t columns) { return OwnedTensor(ctx, name, shape.dtype, {tokens, columns}, kind); };
  const auto statistic = [&](int64_t count) { return OwnedTensor(ctx, name, DType::f32, {count}, kind); };
  switch (slot) {
    case Slot::x:
    case Slot::normed1:
    case Slot::attn_out:
    case Slot::mid:
    case Slot::normed2:
    case Slot::out: return rows(c.hidden);
    case Slot::rstd1:
    case Slot::rstd2: return statistic(tokens);
    case Slot::qkv: return rows(c.qkv_width());
    case Slot::q:
    case Slot::q_raw:
    case Slot::attn: return rows(c.q_width());
    case Slot::k:
    case Slot::v:
    case Slot::k_raw: return rows(c.kv_width());
    case Slot::q_rstd: return statistic(tokens * c.heads);
    case Slot::k_rstd: return statistic(tokens * c.kv_heads);
    case Slot::lse: return OwnedTensor(ctx, name, DType::f32, {shape.batch, c.heads, shape.seq}, kind);
    case Slot::gate_up: return rows(2 * c.intermediate);
    case Slot::act: return rows(c.intermediate);
    default: return {};
  }
}

Block::Block(const BlockShape& shape, StageMask recompute) : shape_(shape), stages_(block_stages(shape_)) {
  // What the policy would keep; x always.
  SlotSet offered{Slot::x};
  for (const Stage& stage : stages_) {
    for_backward_ |= stage.backward_reads;
    for_dweight_ |= stage.dweight_reads;
    if ((recompute & stage_bit(stage.id)) == 0) offered |= stage.writes;
  }
  // The closure: from what backward needs and nobody kept, back through the stages that write it. What dweight waits
  // for is made by a backward if nobody kept it.
  SlotSet needed = for_backward_ - offered, read_again;
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    if ((stage->writes & needed).empty()) continue;
    rerun_ |= stage_bit(stage->id);
    read_again |= stage->reads;
    needed = (needed - stage->writes) | (stage->reads - offered);
  }
  // Of what was offered, only what somebody will read.
  kept_ = (offered & (for_backward_ | read_again | for_dweight_)) | SlotSet{Slot::x};
}

void Block::run_stages(const BlockRun& run, StageMask which, SlotSet wanted_after) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    if ((which & stage_bit(stage.id)) == 0) continue;
    const Scope scope(run.ctx, to_string(stage.id));
    for_slots([&](Slot slot) {
      if (stage.writes.contains(slot) && !is_tape(slot) && !run.values.has(slot))
        run.values[slot] = run.make(slot, false);
    });
    stage.forward(run);
    SlotSet wanted = wanted_after;
    for (size_t later = i + 1; later < stages_.size(); ++later) {
      if (which & stage_bit(stages_[later].id)) wanted |= stages_[later].reads;
    }
    for_slots([&](Slot slot) {
      if ((stage.reads | stage.writes).contains(slot) && !wanted.contains(slot)) release(run.values, slot);
    });
  }
}

Stream Block::forward(const BlockRun& run, Stream below, bool for_backward) const {
  constexpr SlotSet kEnd{Slot::mid, Slot::out};
  run.values[Slot::in_mid] = std::move(below.mid);
  run.values[Slot::in_out] = std::move(below.out);
  run_stages(run, ~StageMask{0}, for_backward ? kept_ | kEnd : kEnd);
  Stream end{.mid = {}, .out = std::move(run.values[Slot::out])};
  if (for_backward && kept_.contains(Slot::mid)) {
    end.mid.view = run.values[Slot::mid];
  } else {
    end.mid = std::move(run.values[Slot::mid]);
  }
  return end;
}

void Block::restore(const BlockRun& run) const { run_stages(run, rerun_, for_backward_ | for_dweight_); }

OwnedTensor Block::backward(const BlockRun& run, OwnedTensor dnext) const {
  run.values.d(Slot::out) = std::move(dnext);
  std::vector<const Stage*> waiting;  // for what their dweight reads
  SlotSet made;
  for (size_t i = stages_.size(); i-- > 0;) {
    const Stage& stage = stages_[i];
    {
      const Scope scope(run.ctx, to_string(stage.id));
      stage.backward(run);
    }
    made |= stage.backward_makes;
    if (stage.dweight) waiting.push_back(&stage);
    std::erase_if(waiting, [&](const Stage* other) {
      if (!(other->dweight_reads - made).empty()) return false;
      const Scope scope(run.ctx, to_string(other->id));
      other->dweight(run);
      return true;
    });
    SlotSet values, grads{Slot::x};
    const auto still_read = [&](const Stage& by) {
      values |= by.backward_reads | by.dweight_reads;
      grads |= by.grad_reads;
    };
    for (size_t earlier = 0; earlier < i; ++earlier) still_read(stages_[earlier]);
    for (const Stage* other : waiting) still_read(*other);
    for_slots([&](Slot slot) {
      if (!values.contains(slot)) release(run.values, slot);
      if (!grads.contains(slot)) run.values.d(slot).reset();
    });
  }
  return std::move(run.values.d(Slot::x));
}

}  // namespace tigon
