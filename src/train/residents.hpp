#pragma once

#include <optional>
#include <vector>

#include "tigon/train/train_config.hpp"
#include "train/gradients.hpp"
#include "train/nf4_home.hpp"
#include "train/residency/disk.hpp"

namespace tigon {

// What the host hands to a step and what it gets back. There are two of them on a GPU, so that one is filled while the
// other is in use.
struct StepBuffers {
  OwnedTensor ids;     // [accumulate, tokens] i32
  OwnedTensor labels;  // [accumulate, tokens] i32
  // [accumulate, tokens] i32, where documents are apart: in its row each token's document begins here, and it is so
  // far behind that.
  OwnedTensor starts, positions;
  OwnedTensor loss_grad;  // [1] f32: loss scale over the tokens that count in the whole step
  // [accumulate + 2] f32: the loss sums, the gradient's norm, the clipping factor; with early updates then the norms of
  // the parts, [layers + 2].
  OwnedTensor results;

  std::vector<int32_t> host_ids;  // the host's copy of ids, where embedding and head are streamed

  Tensor micro_ids(int64_t micro) const { return row(ids, micro); }
  std::span<const int32_t> host_micro_ids(int64_t micro) const {
    const auto tokens = static_cast<size_t>(ids.view.sizes[1]);
    return std::span(host_ids).subspan(static_cast<size_t>(micro) * tokens, tokens);
  }
  Tensor micro_labels(int64_t micro) const { return row(labels, micro); }
  // As [batch, seq].
  Tensor micro_starts(int64_t micro, int64_t seq) const { return rows(starts, micro, seq); }
  Tensor micro_positions(int64_t micro, int64_t seq) const { return rows(positions, micro, seq); }
  Tensor loss(int64_t micro) const { return results.view.slice(0, micro, micro + 1); }
  Tensor norm() const { return results.view.slice(0, ids.view.sizes[0], ids.view.sizes[0] + 1); }
  Tensor clip() const { return results.view.slice(0, ids.view.sizes[0] + 1, ids.view.sizes[0] + 2); }
  Tensor part_norm(int64_t part) const {
    return results.view.slice(0, ids.view.sizes[0] + 2 + part, ids.view.sizes[0] + 3 + part);
  }

 private:
  static Tensor rows(const OwnedTensor& t, int64_t micro, int64_t seq) {
    return t.view.present() ? row(t, micro).reshape({t.view.sizes[1] / seq, seq}) : Tensor{};
  }
  static Tensor row(const OwnedTensor& t, int64_t i) { return t.view.slice(0, i, i + 1).reshape({t.view.sizes[1]}); }
};

// For a text that is continued: its tokens alone, filled up to train.seq.
StepBuffers text_buffers(const Context& ctx, const TrainConfig& train);

// Where memory comes from, by what it is near to. On the host, what copies reach at full speed is pinned.
struct Spaces {
  Context device;
  Context pinned;
  Context host;
  Disk& disk;

  // For what copies move.
  Context of(Home home) const {
    return home == Home::device ? device : home == Home::host ? pinned : Context{.memory = &disk};
  }
};

// What stays of one parameter: its weight, what the optimizer keeps for it, and its gradient where that goes home.
struct TrainedParameter {
  struct State {
    StateSpec spec;
    OwnedTensor tensor;
  };
  OwnedTensor weight;           // at home; absent where it is in NF4
  std::vector<Nf4Home> in_nf4;  // each part that the files have of it
  OwnedTensor on_device;        // its copy for the device, where the host updates weights that stay on the device too
  OwnedTensor gradient;         // at home; absent where gradients stay on the device
  std::vector<State> states;    // as optimizer_states lists them

  const Tensor& device_weight() const { return on_device.view.present() ? on_device.view : weight.view; }
  // What is at home of its weight: that, or the arrays of each part in NF4.
  std::vector<Tensor> weight_at_home() const;
};

// What has not an element for each of the parameter stays in memory where states are on the disk: of a piece it is no
// whole pages.
Home home_of(const StateSpec& state, const Homes& homes);

// Everything that stays from step to step, each in its home: weights, the optimizer's states, the buffers to the host,
// and the gradients where several micro-batches add to them.
struct Residents {
  Residents(const Spaces& spaces, const ParameterList& parameters, const ModelConfig& model, const TrainConfig& train);

  // Some bytes of a tensor, whatever its home; done when they return.
  void write(const Context& ctx, const Tensor& to, int64_t offset, const void* from, int64_t bytes) const;
  void read(const Context& ctx, void* to, const Tensor& from, int64_t offset, int64_t bytes) const;
  void clear(const Context& ctx, const Tensor& t) const;

  std::vector<TrainedParameter> parameters;
  std::vector<StepBuffers> buffers;
  // With several micro-batches each is copied here in its turn, so that all of them run on the same addresses: what a
  // GPU records of one serves for the others.
  std::optional<StepBuffers> turn;
  Gradients gradients;
  // Of a parameter, where it stays until its update.
  const Tensor& gradient(int parameter) const {
    const Tensor& home = parameters[static_cast<size_t>(parameter)].gradient;
    return home.present() ? home : gradients.of(parameter);
  }
  // Where gradients go home: the sums of their squares by pieces.
  OwnedTensor norm_pieces;  // [pieces] f64
  // Where the host updates: the clipping factor.
  OwnedTensor host_clip;  // [1] f32
  // Where the device updates what does not stay there: what a piece of a parameter passes through.
  std::vector<OwnedTensor> update_slots;
  // For updates beside the step's stream, which no plan follows.
  Buffer host_scratch, device_scratch;
  // Where embedding and head are streamed: what passes between the host and the device of a micro-batch's tokens.
  OwnedTensor vocabulary_rows, vocabulary_ids;
  // Homes of the layers' inputs away from the device: of each layer and micro-batch, and where there are several
  // of these the last layer's output.
  std::vector<OwnedTensor> layer_inputs;
  // What passes between the disk and the device, and what the host updates of the disk's.
  Buffer up_ring, inputs_ring, down_ring, update_ring;
  Disk& disk;

 private:
  void take_rings(const Spaces& spaces, const ParameterList& list, const ModelConfig& model, const TrainConfig& train);
};

}  // namespace tigon
