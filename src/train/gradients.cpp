#include "train/gradients.hpp"

namespace tigon {

OwnedTensor Gradients::make(const Context& ctx, int parameter) const {
  const Parameter& p = parameters_.all[static_cast<size_t>(parameter)];
  return {ctx, p.name + ".grad", dtype_, p.sizes, MemoryClass::gradients};
}

void Gradients::take_all(const Context& ctx) {
  for (int i = 0; i < static_cast<int>(tensors_.size()); ++i) {
    if (parameters_.all[static_cast<size_t>(i)].trains) tensors_[static_cast<size_t>(i)] = make(ctx, i);
  }
  stays_ = true;
}

Gradient Gradients::at(const Context& ctx, int parameter) {
  const auto index = static_cast<size_t>(parameter);
  if (!parameters_.all[index].trains) return {};
  if (!tensors_[index].view.present()) tensors_[index] = make(ctx, parameter);
  const bool accumulate = written_[index];
  written_[index] = true;
  return {.tensor = tensors_[index], .accumulate = accumulate};
}

void Gradients::used(int parameter) {
  if (!stays_) tensors_[static_cast<size_t>(parameter)].reset();
}

void Gradients::used_all() {
  for (int i = 0; i < static_cast<int>(tensors_.size()); ++i) used(i);
}

}  // namespace tigon
