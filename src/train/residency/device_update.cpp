#include "train/residency/device_update.hpp"

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

int64_t DeviceUpdate::slot_bytes(const TrainConfig& train, int64_t elements) {
  const Precision& precision = train.precision;
  const Homes& homes = train.memory.homes;
  int64_t bytes = 0;
  const auto add = [&](Home home, DType dtype) {
    if (home != Home::device) bytes += align_up(elements * size_of(dtype));
  };
  if (precision.master) add(homes.states, *precision.master);
  add(homes.weights, precision.weight);
  add(homes.gradients, precision.grad);
  add(homes.states, precision.m);
  add(homes.states, precision.v);
  return bytes;
}

void DeviceUpdate::help(std::shared_ptr<UpdateJob> job) {
  if (!worker_) worker_.emplace();
  if (!stream_ && train_.device.kind != DeviceKind::cpu) stream_.emplace(train_.device);
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
  const Context ctx{.device = train_.device,
                    .stream = stream_ ? stream_->get() : nullptr,
                    .threads = train_.threads,
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
  const AdamwTensors at_home = adamw_tensors(trained, residents_.gradient(piece.parameter));
  const auto part_of = [&](const Tensor& t) { return flat_slice(t, piece.first, piece.elements); };
  std::vector<Lane::Copy> coming, going;
  std::byte* free = residents_.update_slots.empty() ? nullptr : residents_.update_slots[slot_].view.as<std::byte>();
  // The piece of `t` on the device: there already, or brought.
  enum Use { read, written, changed };
  const auto bring = [&](const Tensor& t, Home home, Use use) -> Tensor {
    if (!t.present() || home == Home::device) return part_of(t);
    Tensor here = part_of(t);
    here.data = free;
    here.device = train_.device;
    free += align_up(here.bytes());
    if (use != Use::written) coming.push_back({.to = here, .from = part_of(t)});
    if (use != Use::read) going.push_back({.to = part_of(t), .from = here});
    return here;
  };
  const auto bring_weight = [&](Use use) -> Tensor {
    if (!trained.on_device.view.present()) return bring(trained.weight, homes.weights, use);
    going.push_back({.to = part_of(trained.weight), .from = part_of(trained.on_device)});
    return part_of(trained.on_device);
  };
  const bool master = at_home.param_copy.present();
  const AdamwTensors here{
      .param = master ? bring(at_home.param, homes.states, Use::changed) : bring_weight(Use::changed),
      .grad = bring(at_home.grad, homes.gradients, Use::read),
      .m = bring(at_home.m, homes.states, Use::changed),
      .v = bring(at_home.v, homes.states, Use::changed),
      .param_copy = master ? bring_weight(Use::written) : Tensor{}};

  up_.copy(coming, begin.ready, begin.watch).hold(ctx);
  update_piece(ctx, parameters_, train_, piece.parameter, piece.first, here, begin.device_scale, begin.args);
  return down_.copy(going, Moment::of(ctx), begin.watch);
}

}  // namespace tigon
