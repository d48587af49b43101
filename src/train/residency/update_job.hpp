#pragma once

#include <algorithm>
#include <mutex>
#include <optional>

#include "train/residency/moment.hpp"
#include "train/update.hpp"

namespace tigon {

// The update of one part, cut into pieces that whoever is free takes next, the host's thread or the device's: so both
// end together, whatever their rates. Arithmetic is element by element, and bits do not depend on who takes what.
class UpdateJob {
 public:
  struct Piece {
    int parameter = 0;
    int64_t first = 0, elements = 0;
  };
  struct Begin {
    Moment ready;  // gradients are where they are read, and nobody reads the old weights any more
    Moment scale;  // the host's copy of the clipping factor is there
    Tensor device_scale{}, host_scale{};  // the factor; absent where there is none
    UpdateArgs args{};
    Observer* watch = nullptr;  // who watches the threads that update
  };
  // `takers`: how many threads leave it before it is done.
  UpdateJob(const ParameterList& parameters, const TrainConfig& train, int part, int takers, Begin begin)
      : begin(std::move(begin)),
        parameters_(parameters),
        train_(train),
        part_(part),
        end_(parameters.parts[static_cast<size_t>(part)].end),
        takers_(takers),
        next_{.parameter = parameters.parts[static_cast<size_t>(part)].trained} {}

  int part() const { return part_; }
  // Of at most `most` elements of one parameter, or all of one that is updated whole. None where all are taken, or
  // somebody has failed.
  std::optional<Piece> take(int64_t most) {
    const std::lock_guard lock(mutex_);
    if (failure_ || next_.parameter == end_) return {};
    next_.elements = piece_elements(parameters_, next_.parameter, train_, most, next_.first);
    const Piece piece = next_;
    next_.first += piece.elements;
    if (next_.first == parameters_.all[static_cast<size_t>(next_.parameter)].elements())
      next_ = {.parameter = next_.parameter + 1};
    return piece;
  }
  // A thread takes no more; `queued` is what remains of its pieces.
  void leave(const Moment& queued, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    queued_->push_back(queued);
    if (failure && !failure_) failure_ = std::move(failure);
    if (--takers_ == 0) done_->raise(failure_);
  }
  // When all of the part is at home, and on the device where it stays there.
  Moment done() const { return Moment(done_, queued_); }

  const Begin begin;

 private:
  const ParameterList& parameters_;
  const TrainConfig& train_;
  const int part_, end_;
  std::mutex mutex_;
  int takers_;
  Piece next_;
  std::exception_ptr failure_;
  std::shared_ptr<Flag> done_ = std::make_shared<Flag>();
  std::shared_ptr<std::vector<Moment>> queued_ = std::make_shared<std::vector<Moment>>();
};

}  // namespace tigon
