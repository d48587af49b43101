#include "train/residency/host_update.hpp"

#include <chrono>
#include <thread>

#include "tigon/core/scope.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon {

void HostUpdate::help(std::shared_ptr<UpdateJob> job) {
  if (!worker_) worker_.emplace();
  (void)worker_->add([this, job = std::move(job)] {
    Moment sent;
    std::exception_ptr failure;
    try {
      sent = pieces(*job);
    } catch (...) {
      failure = std::current_exception();
    }
    job->leave(sent, std::move(failure));
  });
}

// Beside a GPU two cores stay free, for the threads that queue copies and kernels: where every core has an update to
// do, such a thread waits for milliseconds, and the GPU for it.
int HostUpdate::threads() const noexcept {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return train_.threads > 0 || train_.device.kind == DeviceKind::cpu || cores <= 4 ? train_.threads : cores - 2;
}

Moment HostUpdate::pieces(UpdateJob& job) {
  constexpr int64_t kTimes = 4;  // the device's piece is too small to share evenly among many cores
  Moment sent;
  job.begin.ready.wait();
  job.begin.scale.wait();
  StackArena scratch(residents_.host_scratch.data(), residents_.host_scratch.bytes());
  const Context host{.threads = threads(), .memory = &scratch, .observer = job.begin.watch};
  const Scope scope(host, "update on the host", job.part());
  const auto updated = [&](const UpdateJob::Piece& piece) {
    elements_ += piece.elements;
    const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(piece.parameter)];
    if (!trained.on_device.view.present()) return;
    const Lane::Copy copy{.to = flat_slice(trained.on_device, piece.first, piece.elements),
                          .from = flat_slice(trained.weight, piece.first, piece.elements)};
    sent = up_.copy({&copy, 1}, {}, job.begin.watch);
  };
  if (disk_) {
    nanoseconds_ += disk_->pieces(host, job, updated).count();
    return sent;
  }
  while (const auto piece = job.take(kTimes * train_.memory.update_piece)) {
    const auto began = std::chrono::steady_clock::now();
    update_piece(host, parameters_, train_, piece_at_home(residents_, piece->parameter, piece->first, piece->elements),
                 job.begin.host_scale, job.begin.args);
    nanoseconds_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
    updated(*piece);
  }
  return sent;
}

}  // namespace tigon
