#include "train/residency/disk_update.hpp"

namespace tigon {

int64_t DiskUpdate::ring_bytes(const TrainConfig& train, int64_t piece) {
  const Homes& homes = train.memory.homes;
  const Precision& precision = train.precision;
  int64_t bytes = 0;
  const auto add = [&](Home home, DType dtype) {
    if (home == Home::nvme) bytes += align_up(piece * size_of(dtype), kDiskPage);
  };
  add(homes.weights, precision.weight);
  add(homes.gradients, precision.grad);
  if (precision.master) add(homes.states, *precision.master);
  add(homes.states, precision.m);
  add(homes.states, precision.v);
  return bytes == 0 ? 0 : disk_ring_bytes(bytes);
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

DiskUpdate::Fields DiskUpdate::fields_of(int parameter) const {
  const TrainedParameter& trained = residents_.parameters[static_cast<size_t>(parameter)];
  const Tensor master = trained.state("master");
  return {{{.home = trained.weight, .reads = !master.present(), .writes = true},
           {.home = trained.gradient, .reads = true},
           {.home = master, .reads = true, .writes = true},
           {.home = trained.state("m"), .reads = true, .writes = true},
           {.home = trained.state("v"), .reads = true, .writes = true}}};
}

void DiskUpdate::book(int part) {
  const Part& p = parameters_.parts[static_cast<size_t>(part)];
  for (int i = p.begin; i < p.end; ++i) {
    for (const Field& field : fields_of(i)) {
      if (!on_disk(field.home)) continue;
      if (field.reads) residents_.disk.book_read(field.home);
      if (field.writes) residents_.disk.book_write(field.home);
    }
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
  const Fields fields = fields_of(piece.parameter);
  for (size_t f = 0; f < fields.size(); ++f) {
    const Tensor& home = fields[f].home;
    slot.near[f] = {};
    if (!home.present()) continue;
    const Tensor part = flat_slice(home, piece.first, piece.elements);
    slot.near[f] = part;
    if (!on_disk(home)) continue;
    slot.near[f].data = place;
    const int64_t bytes = align_up(part.bytes(), kDiskPage);
    if (fields[f].reads) slot.under_way.push_back(residents_.disk.read(part.data, place, bytes));
    place += bytes;
  }
}

void DiskUpdate::send(const Piece& piece, Slot& slot) {
  const Fields fields = fields_of(piece.parameter);
  for (size_t f = 0; f < fields.size(); ++f) {
    const Field& field = fields[f];
    if (!field.writes || !on_disk(field.home)) continue;
    const Tensor& near = slot.near[f];
    std::byte* home = field.home.as<std::byte>() + piece.first * size_of(near.dtype);
    slot.under_way.push_back(residents_.disk.write(home, near.data, align_up(near.bytes(), kDiskPage)));
  }
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
    const auto& [weight, gradient, master, m, v] = slot.near;
    const bool has_master = master.present();
    update_piece(host, parameters_, train_, asked[i].parameter, asked[i].first,
                 {.param = has_master ? master : weight,
                  .grad = gradient,
                  .m = m,
                  .v = v,
                  .param_copy = has_master ? weight : Tensor{}},
                 job.begin.host_scale, job.begin.args);
    computed += std::chrono::steady_clock::now() - began;
    send(asked[i], slot);
    updated(asked[i]);
  }
}

}  // namespace tigon
