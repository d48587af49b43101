#include "train/residents.hpp"

#include <algorithm>

#include "tigon/ops/global_norm.hpp"
#include "train/residency/device_update.hpp"

namespace tigon {

Tensor TrainedParameter::state(std::string_view name) const {
  for (const State& state : states) {
    if (state.name == name) return state.tensor;
  }
  return {};
}

Residents::Residents(const Spaces& spaces, const ParameterList& list, const ModelConfig& model,
                     const TrainConfig& train)
    : gradients(list, train.precision.grad) {
  const Precision& precision = train.precision;
  const Homes& homes = train.memory.homes;
  const Context& ctx = spaces.device;
  const Updater updater = train.memory.updater;
  const bool by_host = host_updates(updater);
  // Copies reach pinned memory at full speed; what the host alone updates they need not.
  const Context& states = homes.states == Home::device ? ctx : device_updates(updater) ? spaces.pinned : spaces.host;
  for (const Parameter& p : list.all) {
    TrainedParameter& trained = parameters.emplace_back();
    trained.weight = {by_host ? spaces.pinned : spaces.of(homes.weights), p.name, precision.weight, p.sizes,
                      MemoryClass::weights};
    if (by_host && homes.weights == Home::device) {
      trained.on_device = {ctx, p.name, precision.weight, p.sizes, MemoryClass::weights};
    }
    if (homes.gradients == Home::host) {
      trained.gradient = {spaces.pinned, p.name + ".grad", precision.grad, p.sizes, MemoryClass::gradients};
    }
    const auto keep = [&](const char* name, DType dtype, bool copies_weight) {
      trained.states.push_back(
          {name, copies_weight, {states, p.name + "." + name, dtype, p.sizes, MemoryClass::states}});
    };
    if (precision.master) keep("master", *precision.master, true);
    keep("m", precision.m, false);
    keep("v", precision.v, false);
  }
  if (homes.gradients == Home::host) {
    int64_t pieces = 0;
    for (const Parameter& p : list.all) pieces += ops::norm_pieces(train.device, p.elements());
    norm_pieces = {ctx, "norm pieces", DType::f64, {pieces}, MemoryClass::other};
  } else if (train.turns() || train.memory.moves_updates()) {  // which read them behind the next forward
    gradients.take_all(ctx);
  }
  if (by_host) host_clip = {spaces.pinned, "clipping factor", DType::f32, {1}, MemoryClass::other};
  if (train.memory.moves_updates() && device_updates(updater)) {
    int64_t piece = 0;
    for (const Parameter& p : list.all) piece = std::max(piece, p.elements());
    const int64_t bytes = DeviceUpdate::slot_bytes(train, std::min(piece, train.memory.update_piece));
    for (int i = 0; i < DeviceUpdate::kSlots; ++i) {
      update_slots.push_back({ctx, "update slot", DType::i32, {bytes / size_of(DType::i32)}, MemoryClass::workspace});
    }
  }
  if (train.streams_vocabulary()) {
    const bool wide = precision.weight == DType::f32 || precision.grad == DType::f32;
    vocabulary_rows = {spaces.pinned,
                       "rows of the vocabulary",
                       wide ? DType::f32 : precision.weight,
                       {std::min(train.tokens(), model.vocab), model.hidden},
                       MemoryClass::other};
    vocabulary_ids = {spaces.pinned, "rows of the tokens", DType::i32, {train.tokens()}, MemoryClass::other};
  }
  // One micro-batch hands the last layer's output on; several wait with it.
  const int64_t places = train.micros_at_once() > 1 ? (model.layers + 1) * train.micros_at_once() : model.layers;
  for (int64_t i = 0; homes.layer_inputs == Home::host && i < places; ++i) {
    layer_inputs.emplace_back(spaces.pinned, "layers." + std::to_string(i / train.micros_at_once()) + ".x",
                              precision.weight, std::initializer_list<int64_t>{train.tokens(), model.hidden},
                              MemoryClass::layer_inputs);
  }
  const int64_t tokens = train.tokens();
  const int64_t parts = train.memory.update_early ? static_cast<int64_t>(list.parts.size()) : 0;
  const int sets = train.device.kind == DeviceKind::cpu ? 1 : 2;
  const auto take_buffers = [&](int64_t micros) {
    return StepBuffers{.ids = OwnedTensor(ctx, "token ids", DType::i32, {micros, tokens}, MemoryClass::other),
                       .labels = OwnedTensor(ctx, "labels", DType::i32, {micros, tokens}, MemoryClass::other),
                       .loss_grad = OwnedTensor(ctx, "loss gradient", DType::f32, {1}, MemoryClass::other),
                       .results = OwnedTensor(ctx, "results", DType::f32, {micros + 2 + parts}, MemoryClass::other),
                       .host_ids = {}};
  };
  for (int i = 0; i < sets; ++i) buffers.push_back(take_buffers(train.accumulate));
  if (train.turns()) turn = take_buffers(1);
}

}  // namespace tigon
