#pragma once

#include <map>

#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "train/residency/host_update.hpp"
#include "train/residency/in_flight.hpp"

namespace tigon {

// Embedding and head, [V, hidden] each, of which the device never holds all: weights and gradients stay on the host.
// The embedding's rows come and go for the tokens of a micro-batch alone, and the loss asks for the head in panels.
class StreamedVocabulary final : public ops::WeightPanels {
 public:
  StreamedVocabulary(const ParameterList& parameters, const TrainConfig& train, Residents& residents,
                     const HostUpdate& updates, Lane& up, Lane& down);

  void begin_step();

  // Rows of a [V, hidden] tensor on the device, each once, and where each token finds its own.
  struct Rows {
    OwnedTensor ids;     // [tokens] i32: rows of `table`
    OwnedTensor table;   // [at most tokens, hidden]
    bool filled = true;  // else table holds nothing yet
  };
  // The embedding of a micro-batch's tokens.
  Rows embedding(const Context& ctx, const StepBuffers& buffers, int64_t micro);
  // Its gradient's rows, with the sums of earlier micro-batches and of a head that is the embedding; and home again.
  Rows gradient(const Context& ctx, const StepBuffers& buffers, int64_t micro);
  void take_home(const Context& ctx, Rows rows);

  // The loss of one micro-batch, whose panels are asked for until finish_loss: whether it adds to the head's gradient.
  bool begin_loss(bool gradients);
  Tensor weight(const Context& ctx, ops::Classes now, ops::Classes next) override;
  Tensor dweight(const Context& ctx, ops::Classes now, ops::Classes next) override;
  void written(const Context& ctx, ops::Classes now) override;
  void finish_loss(const Context& ctx);

  // When all that was written of a parameter's gradient so far is at home; of others at once.
  const Moment& arrived(int parameter) const;
  // The sums of squares of both gradients, piece by piece: `pieces` is a parameter's part of the array.
  void norm_pieces(const Context& ctx, int parameter, const Tensor& pieces);

 private:
  // A panel on its way or there.
  struct Panel {
    int64_t begin = -1;
    OwnedTensor tensor;
  };
  struct Unique {
    std::vector<int32_t> tokens, rows;  // each token once, and of each position which of them
  };
  Unique unique(const int32_t* ids);
  Rows bring(const Context& ctx, int64_t micro_rows_of, const Tensor& home, const Unique& unique, const Moment& after,
             bool filled);
  OwnedTensor slot(const Context& ctx, const char* name, const Tensor& home, int64_t rows) const;
  void fetch(const Context& ctx, std::map<int64_t, InFlight>& coming, const char* name, const Tensor& home,
             ops::Classes classes, const Moment& after);

  const ParameterList& parameters_;
  const TrainConfig& train_;
  Residents& residents_;
  const HostUpdate& updates_;
  Lane& up_;
  Lane& down_;
};

}  // namespace tigon
