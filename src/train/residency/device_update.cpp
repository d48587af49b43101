#include "train/residency/device_update.hpp"

#include <algorithm>

#include "tigon/memory/arena.hpp"
#include "tigon/memory/plan.hpp"

namespace tigon {

DeviceUpdate::~DeviceUpdate() {
  worker_.reset();
  if (!stream_) return;
  try {
    synchronize({.device = train_.device, .stream = stream_->get()});
  } catch (const std::exception&) {  // NOLINT: a device that fails here has failed before
  }
}

int64_t DeviceUpdate::slot_bytes(const ParameterList& parameters, const TrainConfig& train) {
  const Homes& homes = train.memory.homes;
  int64_t most = 0;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    if (!parameters.all[i].trains) continue;
    const int64_t elements = piece_elements(parameters, static_cast<int>(i), train, train.memory.update_piece);
    int64_t bytes = 0;
    const auto add = [&](Home home, int64_t of_piece) {
      if (home != Home::device) bytes += align_up(of_piece);
    };
    add(homes.weights, elements * size_of(train.precision.weight));
    add(homes.gradients, elements * size_of(train.precision.grad));
    for (const StateSpec& state : optimizer_states(parameters, static_cast<int>(i), train))
      add(homes.states, state.bytes(elements));
    most = std::max(most, bytes);
  }
  return most;
}

void DeviceUpdate::help(std::shared_ptr<UpdateJob> job) {
  if (!worker_) worker_.emplace();
  if (!stream_ && train_.device.kind != DeviceKind::cpu) stream_.emplace(train_.device, true);
  (void)worker_->add([this, job = std::move(job)] {
    Moment home;
    std::exception_ptr failure;
    try {
      home = pieces(*job);
    } catch (...) {
      failure = std::current_exception();
    }
    job->leave(home, std::move(failure));
  });
}

Moment DeviceUpdate::pieces(UpdateJob& job) {
  // One update after the other uses it, in the stream's order.
  StackArena scratch(residents_.device_scratch.data(), residents_.device_scratch.bytes());
  const Context ctx{.device = train_.device,
                    .stream = stream_ ? stream_->get() : nullptr,
                    .threads = train_.threads,
                    .memory = &scratch,
                    .observer = job.begin.watch};
  Moment home;
  job.begin.ready.hold(ctx);
  const Scope scope(ctx, "update on the device", job.part());
  while (true) {
    // A piece is taken when there is a slot for it, and not before: until then the host may take it.
    gone_[slot_].wait();
    const auto piece = job.take(train_.memory.update_piece);
    if (!piece) return home;
    home = gone_[slot_] = this->piece(ctx, job.begin, *piece);
    slot_ = (slot_ + 1) % gone_.size();
    elements_ += piece->elements;
  }
}

Moment DeviceUpdate::piece(const Context& ctx, const UpdateJob::Begin& begin, const UpdateJob::Piece& piece) {
  const Homes& homes = train_.memory.homes;
  const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(piece.parameter)];
  const auto part_of = [&](const Tensor& t) { return flat_slice(t, piece.first, piece.elements); };
  std::vector<Lane::Copy> coming, going;
  std::byte* free = residents_.update_slots.empty() ? nullptr : residents_.update_slots[slot_].view.as<std::byte>();
  // A part that is at home somewhere, on the device: there already, or brought.
  const auto bring = [&](const Tensor& part, Home home, Use use) -> Tensor {
    if (!part.present() || home == Home::device) return part;
    Tensor here = part;
    here.data = free;
    here.device = train_.device;
    free += align_up(here.bytes());
    if (use != Use::written) coming.push_back({.to = here, .from = part});
    if (use != Use::read) going.push_back({.to = part, .from = here});
    return here;
  };
  const auto bring_weight = [&](Use use) -> Tensor {
    if (!trained.on_device.view.present()) return bring(part_of(trained.weight), homes.weights, use);
    going.push_back({.to = part_of(trained.weight), .from = part_of(trained.on_device)});
    return part_of(trained.on_device);
  };
  UpdatePiece here = piece_at_home(residents_, piece.parameter, piece.first, piece.elements);
  here.weight = bring_weight(train_.precision.master ? Use::written : Use::changed);
  here.gradient = bring(here.gradient, homes.gradients, Use::read);
  for (Tensor& state : here.states) state = bring(state, homes.states, Use::changed);

  up_.copy(coming, begin.ready, begin.watch).hold(ctx);
  update_piece(ctx, parameters_, train_, here, begin.device_scale, begin.args);
  return down_.copy(going, Moment::of(ctx), begin.watch);
}

}  // namespace tigon
