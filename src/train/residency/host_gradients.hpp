#pragma once

#include <functional>

#include "train/residency/in_flight.hpp"
#include "train/residency/lane.hpp"
#include "train/residency/streamed_vocabulary.hpp"
#include "train/residents.hpp"

namespace tigon {

// Gradients whose home is the host: a part's go there when backward has written all of it. The sums of their squares
// stay on the device, so the norm of all is known as soon as backward ends.
class HostGradients final : public GradientSink {
 public:
  // `vocabulary`: whose gradients go home by themselves.
  HostGradients(const ParameterList& parameters, Residents& residents, Lane& up, Lane& down,
                const StreamedVocabulary* vocabulary);

  // Nothing at home belongs to the step that begins.
  void begin_step() { added_.assign(parameters_.parts.size(), false); }
  Gradient at(const Context& ctx, int parameter) override;
  void complete(const Context& ctx, int part) override;
  void finish(const Context& ctx) override;

  // A parameter's part of residents.norm_pieces.
  Tensor pieces_of(int parameter) const { return pieces(parameter, parameter + 1); }
  // When all of a part's gradient is at home.
  const Moment& arrived(int part) const { return arrived_[static_cast<size_t>(part)]; }

 private:
  struct Place {
    OwnedTensor tensor;
    bool written = false;
  };
  Tensor pieces(int begin, int end) const {
    return residents_.norm_pieces.view.slice(0, first_piece_[static_cast<size_t>(begin)],
                                             first_piece_[static_cast<size_t>(end)]);
  }
  int part_of(int parameter) const { return part_of_[static_cast<size_t>(parameter)]; }

  const ParameterList& parameters_;
  Residents& residents_;
  Lane& up_;
  Lane& down_;
  std::vector<int> part_of_;
  const StreamedVocabulary* vocabulary_;
  std::vector<int64_t> first_piece_;  // of each parameter in residents.norm_pieces, and the end
  std::vector<Place> places_;         // by parameter, on the device
  std::vector<bool> added_;           // by part: an earlier micro-batch's gradient is at home
  std::vector<Moment> arrived_;
  InFlight leaving_;
};

}  // namespace tigon
