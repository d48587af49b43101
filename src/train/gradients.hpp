#pragma once

#include <vector>

#include "tigon/model/block.hpp"

namespace tigon {

// The gradients of a step. Each is born when backward first writes it and dies when the optimizer has used it; over
// several micro-batches they stay.
class Gradients {
 public:
  Gradients(const ParameterList& parameters, DType dtype) : parameters_(parameters), dtype_(dtype) { clear(); }

  // Takes memory for all of them now, for steps of several micro-batches.
  void take_all(const Context& ctx);
  // The place for a parameter's gradient, made if need be. The first writer of a step overwrites, later ones add.
  Gradient at(const Context& ctx, int parameter);
  std::vector<Tensor> all() const;
  const Tensor& of(int parameter) const { return tensors_[static_cast<size_t>(parameter)]; }
  // A parameter's update is done.
  void used(int parameter);
  // None of them will be used.
  void used_all();
  void begin_step() { written_.assign(tensors_.size(), false); }

 private:
  void clear();
  OwnedTensor make(const Context& ctx, int parameter) const;

  const ParameterList& parameters_;
  DType dtype_;
  bool stays_ = false;
  std::vector<OwnedTensor> tensors_;
  std::vector<bool> written_;
};

// The gradients of one block, as its stages ask for them.
class BlockGradients final : public GradientSource {
 public:
  BlockGradients(const Context& ctx, Gradients& gradients, const std::array<int, kBlockWeightCount>& places)
      : ctx_(ctx), gradients_(gradients), places_(places) {}
  Gradient gradient(BlockWeight weight) override { return gradients_.at(ctx_, places_[static_cast<size_t>(weight)]); }

 private:
  const Context& ctx_;
  Gradients& gradients_;
  const std::array<int, kBlockWeightCount>& places_;
};

}  // namespace tigon
