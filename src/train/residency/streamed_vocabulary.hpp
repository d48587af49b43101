#pragma once

#include <map>

#include "tigon/ops/fused_linear_cross_entropy.hpp"
#include "train/residency/in_flight.hpp"
#include "train/residency/part_updates.hpp"

namespace tigon {

// Embedding and head, [V, hidden] each, where the device never holds a whole one: weights and gradients stay on the
// host. Of the embedding only the rows of a micro-batch's tokens come and go, and the loss asks for the head in panels.
class StreamedVocabulary final : public ops::WeightPanels {
 public:
  StreamedVocabulary(const ParameterList& parameters, const TrainConfig& train, const Residents& residents,
                     const PartUpdates& updates, Lane& up, Lane& down)
      : parameters_(parameters),
        train_(train),
        residents_(residents),
        updates_(updates),
        up_(up),
        down_(down),
        tied_(parameters.head == parameters.embedding) {}

  bool has(int parameter) const { return parameter == parameters_.embedding || parameter == parameters_.head; }
  // Nothing at home belongs to the step that begins.
  void begin_step() { embedding_written_ = head_written_ = cleared_ = false; }

  // Some rows of a [V, hidden] tensor, each once.
  struct Rows {
    OwnedTensor ids{};                                     // [tokens] i32: the row of each token
    OwnedTensor table{};                                   // [at most tokens, hidden]
    bool filled = true;                                    // else table's contents mean nothing
    std::shared_ptr<const std::vector<int32_t>> tokens{};  // of the table's first rows; what follows is not used
  };
  // The embedding of a micro-batch's tokens.
  Rows embedding(const Context& ctx, const StepBuffers& buffers, int64_t micro);
  // Rows of its gradient, with what was added up so far, and their way home.
  Rows gradient(const Context& ctx, const StepBuffers& buffers, int64_t micro);
  void send_home(const Context& ctx, Rows rows);

  // Between these two a loss asks for panels. Says whether it adds to the head's gradient or begins it.
  bool begin_loss();
  void finish_loss(const Context& ctx);
  Tensor weight(const Context& ctx, ops::Classes now, ops::Classes next) override;
  Tensor dweight(const Context& ctx, ops::Classes now, ops::Classes next) override;
  void written(const Context& ctx, ops::Classes now) override;

  // When all that was written of a parameter's gradient is at home.
  const Moment& arrived(int parameter) const { return parameter == parameters_.embedding ? rows_home_ : panels_home(); }
  // The sums of squares of a parameter's gradient, by pieces. It comes by once more, since nobody has seen all of it.
  void norm(const Context& ctx, int parameter, const Tensor& pieces);
  // Whatever is still on its way home is waited for, in ctx.stream's order.
  void finish(const Context& ctx) { (void)leaving_.join(ctx); }

 private:
  // Parts of a [V, hidden] tensor at home that come one after the other, the next while one is in use.
  class Window {
   public:
    // [begin, end) of `home`'s first dimension, until the next call.
    Tensor take(const Context& ctx, const Tensor& home, ops::Classes now, ops::Classes next, Lane& up,
                const Moment& after, const char* name, MemoryClass memory_class);
    OwnedTensor take_out() {
      begin_ = -1;
      return std::move(current_);
    }
    void close() { begin_ = -1, current_.reset(); }

   private:
    int64_t begin_ = -1;
    OwnedTensor current_;
    std::map<int64_t, InFlight> coming_;
  };

  const TrainedParameter& of(int parameter) const { return residents_.parameters[static_cast<size_t>(parameter)]; }
  Moment& panels_home() { return tied_ ? rows_home_ : panels_home_; }
  const Moment& panels_home() const { return tied_ ? rows_home_ : panels_home_; }
  const Moment& updated(int part) const { return updates_.updated(part); }
  // The rows of `home` for a micro-batch's tokens; only their ids where they are not `filled`.
  Rows bring(const Context& ctx, const StepBuffers& buffers, int64_t micro, const Tensor& home, const Moment& after,
             bool filled, const char* name, MemoryClass memory_class);
  // The pinned rows through which they pass.
  Tensor passing(DType dtype, int64_t rows) const;
  Worker& worker();

  const ParameterList& parameters_;
  const TrainConfig& train_;
  const Residents& residents_;
  const PartUpdates& updates_;
  Lane& up_;
  Lane& down_;
  const bool tied_;
  bool embedding_written_ = false, head_written_ = false, cleared_ = false;
  std::vector<int32_t> rows_of_;  // by token, within one call
  Moment rows_home_, panels_home_;
  Moment sums_home_;  // the panels of earlier micro-batches
  bool adds_ = false;
  Moment passed_;     // the pinned rows are free
  Moment norm_read_;  // gradients at home are not read for their norm any more
  Window weights_, sums_;
  OwnedTensor dweight_;
  InFlight leaving_;
  std::optional<Worker> worker_;
};

}  // namespace tigon
