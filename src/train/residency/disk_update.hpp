#pragma once

#include <array>
#include <chrono>
#include <functional>

#include "train/residency/disk_copies.hpp"
#include "train/residency/update_job.hpp"

namespace tigon {

// Updates by the host over what is on the disk, all of it or some: pieces come to a ring in memory, are updated there
// and go back, the next ones read and the last ones written meanwhile. The bits do not depend on how it is cut.
class DiskUpdate {
 public:
  // Of the ring; 0 where nothing that is updated is on the disk.
  static int64_t ring_bytes(const ParameterList& parameters, const TrainConfig& train);

  DiskUpdate(const ParameterList& parameters, const TrainConfig& train, const Residents& residents);
  DiskUpdate(const DiskUpdate&) = delete;
  DiskUpdate& operator=(const DiskUpdate&) = delete;
  ~DiskUpdate();  // waits until nobody uses the ring

  // All pieces of the job; returns the time that it computed. `updated` is called after each. What went to the disk may
  // still be under way, and is there for who reads it.
  std::chrono::nanoseconds pieces(const Context& host, UpdateJob& job,
                                  const std::function<void(const UpdateJob::Piece&)>& updated);
  // What that would move.
  void book(int part);

 private:
  using Piece = UpdateJob::Piece;
  // What goes back to the disk.
  struct Going {
    void* home;
    const void* near;
    int64_t bytes;
  };
  // A place in the ring, and the piece that it holds.
  struct Slot {
    std::vector<Disk::Ticket> under_way;
    UpdatePiece near;
    std::vector<Going> going;
  };
  void ask(const Piece& piece, size_t index);
  void send(Slot& slot);
  void wait(Slot& slot);

  const ParameterList& parameters_;
  const TrainConfig& train_;
  const Residents& residents_;
  int64_t piece_;
  std::array<Slot, kDiskDepth> slots_;
};

}  // namespace tigon
