#pragma once

#include "train/residents.hpp"

namespace tigon {

class PartUpdates;
class WeightSource;

// The right to read a part's weights on the device, until it goes.
class WeightLease {
 public:
  // Without a source nothing is given back.
  WeightLease(WeightSource* source, const Part& part, std::vector<Tensor> weights)
      : source_(source), part_(part), weights_(std::move(weights)) {}
  WeightLease(WeightLease&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)), part_(other.part_), weights_(std::move(other.weights_)) {}
  WeightLease& operator=(WeightLease&&) = delete;
  ~WeightLease();

  // By its place in the parameter list.
  const Tensor& operator[](int parameter) const { return weights_[static_cast<size_t>(parameter - part_.begin)]; }
  // The same, for as long as this one.
  WeightLease again() const { return {nullptr, part_, weights_}; }
  BlockTensors block(const std::array<int, kBlockWeightCount>& places) const;

 private:
  WeightSource* source_;
  const Part& part_;
  std::vector<Tensor> weights_;
};

// Where a step gets weights from. It cannot tell whether they stay on the device or come from elsewhere.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Waits until the part is there. `next` is the part that will be asked for after it; -1: not known.
  virtual WeightLease acquire(const Context& ctx, int part, int next = -1) = 0;

 protected:
  friend class WeightLease;
  virtual void release(const Part& part) noexcept = 0;
};

// All weights stay on the device. `updates`: those beside the stream, which every part waits for.
class ResidentWeights final : public WeightSource {
 public:
  ResidentWeights(const ParameterList& parameters, const Residents& residents, const PartUpdates* updates = nullptr)
      : parameters_(parameters), residents_(residents), updates_(updates) {}
  WeightLease acquire(const Context& ctx, int part, int next) override;

 private:
  void release(const Part&) noexcept override {}

  const ParameterList& parameters_;
  const Residents& residents_;
  const PartUpdates* updates_;
};

}  // namespace tigon
