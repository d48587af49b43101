#pragma once

#include <vector>

#include "tigon/model/block.hpp"

namespace tigon {

// Where a step's gradients go.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // The place for a parameter's gradient, made if need be; absent for one that is frozen. The first writer of a step
  // overwrites, later ones add.
  virtual Gradient at(const Context& ctx, int parameter) = 0;
  // Backward has written all of a part.
  virtual void complete(const Context& ctx, int part) = 0;
  // All parts are complete. Whatever is still on its way is waited for, in ctx.stream's order.
  virtual void finish(const Context&) {}
};

// Gradients that stay on the device until they are used. Each is born when backward first writes it; over several
// micro-batches they stay.
class Gradients final : public GradientSink {
 public:
  Gradients(const ParameterList& parameters, DType dtype)
      : parameters_(parameters), dtype_(dtype), tensors_(parameters.all.size()) {
    begin_step();
  }

  // Takes memory for all of them now, for steps of several micro-batches.
  void take_all(const Context& ctx);
  Gradient at(const Context& ctx, int parameter) override;
  void complete(const Context&, int) override {}
  // By parameter; absent where one is frozen.
  std::vector<Tensor> all() const { return {tensors_.begin(), tensors_.end()}; }
  const Tensor& of(int parameter) const { return tensors_[static_cast<size_t>(parameter)]; }
  // A parameter's update is done.
  void used(int parameter);
  // None of them will be used.
  void used_all();
  void begin_step() { written_.assign(tensors_.size(), false); }

 private:
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
  BlockGradients(const Context& ctx, GradientSink& sink, const std::array<int, kBlockWeightCount>& places)
      : ctx_(ctx), sink_(sink), places_(places) {}
  // Absent where the weight is frozen, or this model has none.
  Gradient gradient(BlockWeight weight) override {
    const int place = places_[static_cast<size_t>(weight)];
    return place < 0 ? Gradient{} : sink_.at(ctx_, place);
  }

 private:
  const Context& ctx_;
  GradientSink& sink_;
  const std::array<int, kBlockWeightCount>& places_;
};

}  // namespace tigon
