#include "train/residents.hpp"

#include <algorithm>

#include "tigon/ops/global_norm.hpp"
#include "train/device_block.hpp"
#include "train/low_rank.hpp"
#include "train/residency/device_update.hpp"
#include "train/residency/disk_update.hpp"

namespace tigon {

Home home_of(const StateSpec& state, const Homes& homes) {
  return (state.span > 1 || state.count > 0) && homes.states == Home::nvme ? Home::host : homes.states;
}

std::vector<Tensor> TrainedParameter::weight_at_home() const {
  if (in_nf4.empty()) return {weight};
  std::vector<Tensor> arrays;
  for (const Nf4Home& part : in_nf4)
    arrays.insert(arrays.end(), {part.codes, part.scale_codes, part.group_scales, part.offset});
  return arrays;
}

StepBuffers text_buffers(const Context& ctx, const TrainConfig& train) {
  StepBuffers text;
  text.ids = OwnedTensor(ctx, "text", DType::i32, {1, train.seq}, MemoryClass::other);
  return text;
}

Residents::Residents(const Spaces& spaces, const ParameterList& list, const ModelConfig& model,
                     const TrainConfig& train)
    : gradients(list, train.precision.grad), disk(spaces.disk) {
  const Precision& precision = train.precision;
  const Homes& homes = train.memory.homes;
  const Context& ctx = spaces.device;
  const Updater updater = train.memory.updater;
  const bool by_host = host_updates(updater);
  // Copies reach pinned memory at full speed; what the host alone updates they need not.
  const auto place = [&](Home home) {
    return home == Home::host && !device_updates(updater) ? spaces.host : spaces.of(home);
  };
  for (size_t i = 0; i < list.all.size(); ++i) {
    const Parameter& p = list.all[i];
    TrainedParameter& trained = parameters.emplace_back();
    if (train.in_nf4(p)) {
      for (const ParameterPart& part : p.parts)
        trained.in_nf4.emplace_back(spaces.of(homes.weights), p.name, p.elements_of(part));
      continue;
    }
    const bool twice = p.trains && by_host && homes.weights == Home::device;
    trained.weight = {spaces.of(twice ? Home::host : homes.weights), p.name, precision.weight, p.sizes,
                      MemoryClass::weights};
    if (twice) {
      trained.on_device = {ctx, p.name, precision.weight, p.sizes, MemoryClass::weights};
    }
    if (!p.trains) continue;
    if (homes.gradients != Home::device) {
      trained.gradient = {spaces.of(homes.gradients), p.name + ".grad", precision.grad, p.sizes,
                          MemoryClass::gradients};
    }
    for (const StateSpec& spec : optimizer_states(list, static_cast<int>(i), train)) {
      const bool each = spec.span == 1 && spec.count == 0;
      const std::vector<int64_t> sizes = each ? p.sizes : std::vector<int64_t>{spec.elements(p.elements())};
      trained.states.push_back(
          {spec, {place(home_of(spec, homes)), p.name + "." + spec.name, spec.dtype, sizes, MemoryClass::states}});
    }
  }
  if (homes.gradients != Home::device) {
    int64_t pieces = 0;
    for (const Parameter& p : list.all) pieces += p.trains ? ops::norm_pieces(train.device, p.elements()) : 0;
    norm_pieces = {ctx, "norm pieces", DType::f64, {pieces}, MemoryClass::other};
  } else if (train.turns() || train.memory.moves_updates()) {  // which read them behind the next forward
    gradients.take_all(ctx);
  }
  if (by_host) host_clip = {spaces.pinned, "clipping factor", DType::f32, {1}, MemoryClass::other};
  if (train.memory.moves_updates() && device_updates(updater)) {
    const int64_t bytes = DeviceUpdate::slot_bytes(list, train);
    for (int i = 0; i < DeviceUpdate::kSlots; ++i) {
      update_slots.push_back({ctx, "update slot", DType::i32, {bytes / size_of(DType::i32)}, MemoryClass::workspace});
    }
  }
  if (train.memory.moves_updates() && is_low_rank(train.optimizer.kind)) {
    const auto take = [&](const Context& where) {
      return where.take("scratch of updates", update_scratch(list, train, where.device), MemoryClass::workspace);
    };
    if (by_host) host_scratch = take(spaces.host);
    if (device_updates(updater)) device_scratch = take(ctx);
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
  for (int64_t i = 0; homes.layer_inputs != Home::device && i < places; ++i) {
    layer_inputs.emplace_back(spaces.of(homes.layer_inputs),
                              "layers." + std::to_string(i / train.micros_at_once()) + ".x", precision.weight,
                              std::initializer_list<int64_t>{train.tokens(), model.hidden}, MemoryClass::layer_inputs);
  }
  take_rings(spaces, list, model, train);
  const int64_t tokens = train.tokens();
  const int64_t parts = train.memory.update_early ? static_cast<int64_t>(list.parts.size()) : 0;
  const int sets = train.device.kind == DeviceKind::cpu ? 1 : 2;
  const auto take_buffers = [&](int64_t micros) {
    const auto of_tokens = [&](const char* name) {
      return OwnedTensor(ctx, name, DType::i32, {micros, tokens}, MemoryClass::other);
    };
    return StepBuffers{.ids = of_tokens("token ids"),
                       .labels = of_tokens("labels"),
                       .starts = train.documents_apart ? of_tokens("starts of documents") : OwnedTensor(),
                       .positions = train.documents_apart ? of_tokens("positions") : OwnedTensor(),
                       .loss_grad = OwnedTensor(ctx, "loss gradient", DType::f32, {1}, MemoryClass::other),
                       .results = OwnedTensor(ctx, "results", DType::f32, {micros + 2 + parts}, MemoryClass::other),
                       .host_ids = {}};
  };
  for (int i = 0; i < sets; ++i) buffers.push_back(take_buffers(train.accumulate));
  if (train.turns()) turn = take_buffers(1);
}

void Residents::take_rings(const Spaces& spaces, const ParameterList& list, const ModelConfig& model,
                           const TrainConfig& train) {
  const Homes& homes = train.memory.homes;
  int64_t largest = 0;
  for (const Parameter& p : list.all) largest = std::max(largest, p.elements());
  const auto piece = [&](int64_t elements) { return std::min(train.memory.disk.piece, elements); };
  const auto bytes_of = [&](Home home, int64_t elements, DType dtype) {
    return home == Home::nvme ? piece(elements) * size_of(dtype) : 0;
  };
  const auto take = [](const Context& ctx, const char* name, int64_t bytes) {
    return bytes == 0 ? Buffer() : ctx.take(name, bytes, MemoryClass::other);
  };
  const auto ring = [&](const char* name, int64_t piece_bytes) {
    return take(spaces.pinned, name, piece_bytes == 0 ? 0 : disk_ring_bytes(piece_bytes));
  };
  int64_t weights = 0;
  for (const TrainedParameter& trained : parameters) {
    for (const Tensor& t : trained.weight_at_home())
      weights = std::max(weights, bytes_of(homes.weights, t.elements(), t.dtype));
  }
  const int64_t gradients_down = bytes_of(homes.gradients, largest, train.precision.grad);
  const int64_t inputs = bytes_of(homes.layer_inputs, train.tokens() * model.hidden, train.precision.weight);
  // Gradients come back where further micro-batches add to them.
  up_ring = ring("disk to device", std::max(weights, train.turns() ? gradients_down : 0));
  inputs_ring = ring("layers' inputs from the disk", inputs);
  down_ring = ring("device to disk", std::max(gradients_down, inputs));
  update_ring = take(spaces.host, "update of what is on the disk", DiskUpdate::ring_bytes(list, train));
}

void Residents::write(const Context& ctx, const Tensor& to, int64_t offset, const void* from, int64_t bytes) const {
  if (!on_disk(to)) return copy_bytes_to(ctx, to, offset, from, bytes);
  disk.wait(disk.write(to.as<std::byte>() + offset, from, bytes));
}

void Residents::read(const Context& ctx, void* to, const Tensor& from, int64_t offset, int64_t bytes) const {
  if (!on_disk(from)) return copy_bytes_from(ctx, to, from, offset, bytes);
  disk.wait(disk.read(from.as<std::byte>() + offset, to, bytes));
}

void Residents::clear(const Context& ctx, const Tensor& t) const {
  if (!on_disk(t)) return fill_zero(ctx, t);
  const std::vector<std::byte> zeros(static_cast<size_t>(std::min(t.bytes(), int64_t{4} << 20)));
  for (int64_t offset = 0; offset < t.bytes(); offset += static_cast<int64_t>(zeros.size()))
    write(ctx, t, offset, zeros.data(), std::min(static_cast<int64_t>(zeros.size()), t.bytes() - offset));
}

}  // namespace tigon
