#include "train/residents.hpp"

namespace tigon {

Residents::Residents(const Context& ctx, const ParameterList& parameters, const TrainConfig& train)
    : gradients(parameters, train.precision.grad) {
  const Precision& precision = train.precision;
  for (const Parameter& p : parameters.all) {
    const auto take = [&](const char* what, DType dtype, MemoryClass kind) {
      return OwnedTensor(ctx, p.name + what, dtype, p.sizes, kind);
    };
    weight.push_back(take("", precision.weight, MemoryClass::weights));
    if (precision.master) master.push_back(take(".master", *precision.master, MemoryClass::states));
    m.push_back(take(".m", precision.m, MemoryClass::states));
    v.push_back(take(".v", precision.v, MemoryClass::states));
  }
  if (train.accumulate > 1) gradients.take_all(ctx);
  const int64_t tokens = train.tokens();
  const int64_t parts = train.memory.update_early ? static_cast<int64_t>(parameters.blocks.size()) + 2 : 0;
  const int sets = train.device.kind == DeviceKind::cpu ? 1 : 2;
  const auto take_buffers = [&](int64_t micros) {
    return StepBuffers{.ids = OwnedTensor(ctx, "token ids", DType::i32, {micros, tokens}, MemoryClass::other),
                       .labels = OwnedTensor(ctx, "labels", DType::i32, {micros, tokens}, MemoryClass::other),
                       .loss_grad = OwnedTensor(ctx, "loss gradient", DType::f32, {1}, MemoryClass::other),
                       .results = OwnedTensor(ctx, "results", DType::f32, {micros + 2 + parts}, MemoryClass::other)};
  };
  for (int i = 0; i < sets; ++i) buffers.push_back(take_buffers(train.accumulate));
  if (train.accumulate > 1) turn = take_buffers(1);
}

BlockTensors Residents::block_weights(const ParameterList& parameters, int64_t layer) const {
  BlockTensors tensors{};
  const auto& places = parameters.blocks[static_cast<size_t>(layer)];
  for (size_t w = 0; w < places.size(); ++w) {
    if (places[w] >= 0) tensors[w] = weight[static_cast<size_t>(places[w])];
  }
  return tensors;
}

}  // namespace tigon
