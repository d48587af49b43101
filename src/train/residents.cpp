#include "train/residents.hpp"

namespace tigon {

Tensor TrainedParameter::state(std::string_view name) const {
  for (const State& state : states) {
    if (state.name == name) return state.tensor;
  }
  return {};
}

Residents::Residents(const Context& ctx, const ParameterList& list, const TrainConfig& train)
    : gradients(list, train.precision.grad) {
  const Precision& precision = train.precision;
  for (const Parameter& p : list.all) {
    TrainedParameter& trained = parameters.emplace_back();
    trained.weight = {ctx, p.name, precision.weight, p.sizes, MemoryClass::weights};
    const auto keep = [&](const char* name, DType dtype, bool copies_weight) {
      trained.states.push_back({name, copies_weight, {ctx, p.name + "." + name, dtype, p.sizes, MemoryClass::states}});
    };
    if (precision.master) keep("master", *precision.master, true);
    keep("m", precision.m, false);
    keep("v", precision.v, false);
  }
  if (train.accumulate > 1) gradients.take_all(ctx);
  const int64_t tokens = train.tokens();
  const int64_t parts = train.memory.update_early ? static_cast<int64_t>(list.parts.size()) : 0;
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

}  // namespace tigon
