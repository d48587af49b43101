#include "train/residency/disk_update.hpp"

#include <algorithm>
#include <utility>

namespace tigon {

int64_t DiskUpdate::ring_bytes(const ParameterList& parameters, const TrainConfig& train) {
  const Homes& homes = train.memory.homes;
  int64_t most = 0;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    if (!parameters.all[i].trains) continue;
    const int64_t elements = piece_elements(parameters, static_cast<int>(i), train, train.memory.disk.piece);
    int64_t bytes = 0;
    const auto add = [&](Home home, int64_t of_piece) {
      if (home == Home::nvme) bytes += align_up(of_piece, kDiskPage);
    };
    add(homes.weights, elements * size_of(train.precision.weight));
    add(homes.gradients, elements * size_of(train.precision.grad));
    for (const StateSpec& state : optimizer_states(parameters, static_cast<int>(i), train))
      add(home_of(state, homes), state.bytes(elements));
    most = std::max(most, bytes);
  }
  return most == 0 ? 0 : disk_ring_bytes(most);
}

DiskUpdate::DiskUpdate(const ParameterList& parameters, const TrainConfig& train, const Residents& residents)
    : parameters_(parameters), train_(train), residents_(residents), piece_(train.memory.disk.piece) {}

DiskUpdate::~DiskUpdate() {
  for (Slot& slot : slots_) {
    for (const Disk::Ticket ticket : slot.under_way) {
      try {
        residents_.disk.wait(ticket);
      } catch (const std::exception&) {  // NOLINT: whoever needs what was written hears of it
      }
    }
  }
}

void DiskUpdate::book(int part) {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  for (int i = p.begin; i < p.end; ++i) {
    UpdatePiece whole = piece_at_home(residents_, i, 0, parameters_.all[static_cast<size_t>(i)].elements());
    for_each_tensor(whole, train_, [&](const Tensor& t, Use use) {
      if (!on_disk(t)) return;
      if (use != Use::written) residents_.disk.book_read(t);
      if (use != Use::read) residents_.disk.book_write(t);
    });
  }
}

void DiskUpdate::wait(Slot& slot) {
  for (const Disk::Ticket ticket : slot.under_way) residents_.disk.wait(ticket);
  slot.under_way.clear();
}

void DiskUpdate::ask(const Piece& piece, size_t index) {
  Slot& slot = slots_[index % slots_.size()];
  wait(slot);
  std::byte* place = ring_piece(residents_.update_ring, static_cast<int64_t>(index % slots_.size()));
  slot.going.clear();
  slot.near = piece_at_home(residents_, piece.parameter, piece.first, piece.elements);
  for_each_tensor(slot.near, train_, [&](Tensor& t, Use use) {
    if (!on_disk(t)) return;
    void* const home = std::exchange(t.data, place);
    const int64_t bytes = align_up(t.bytes(), kDiskPage);
    if (use != Use::written) slot.under_way.push_back(residents_.disk.read(home, place, bytes));
    if (use != Use::read) slot.going.push_back({.home = home, .near = place, .bytes = bytes});
    place += bytes;
  });
}

void DiskUpdate::send(Slot& slot) {
  for (const Going& g : slot.going) slot.under_way.push_back(residents_.disk.write(g.home, g.near, g.bytes));
}

std::chrono::nanoseconds DiskUpdate::pieces(const Context& host, UpdateJob& job,
                                            const std::function<void(const Piece&)>& updated) {
  constexpr size_t kAhead = kDiskDepth / 2;  // the others are on their way back
  std::chrono::nanoseconds computed{0};
  std::vector<Piece> asked;
  for (size_t i = 0;; ++i) {
    while (asked.size() <= i + kAhead) {
      const auto piece = job.take(piece_);
      if (!piece) break;
      ask(*piece, asked.size());
      asked.push_back(*piece);
    }
    if (i == asked.size()) return computed;
    Slot& slot = slots_[i % slots_.size()];
    wait(slot);
    const auto began = std::chrono::steady_clock::now();
    update_piece(host, parameters_, train_, slot.near, job.begin.host_scale, job.begin.args);
    computed += std::chrono::steady_clock::now() - began;
    send(slot);
    updated(asked[i]);
  }
}

}  // namespace tigon
