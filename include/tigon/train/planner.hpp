#pragma once

#include <array>
#include <string>

#include "tigon/memory/plan.hpp"
#include "tigon/model/parameters.hpp"
#include "tigon/train/train_config.hpp"

namespace tigon {

// What a run repeats. Each is walked once in measure mode, packed, and replayed; they use one region of memory in turn.
enum class Phase {
  step,        // forward, backward, and with one micro-batch the update
  further,     // the micro-batches after the first, which add to its gradients
  update,      // after the last of them
  evaluation,  // where the run evaluates
  speech,      // where it continues a text
};
inline constexpr size_t kPhaseCount = 5;

// A sequence of births and deaths that repeats, and its packing.
struct Sequence {
  // From this tick of the ledger on the step is at "forward", "loss", "backward" or "update".
  struct Mark {
    int64_t tick = 0;
    std::string phase;
  };
  Ledger ledger;
  Plan plan;
  std::vector<Mark> marks;
};

// Bytes in each place where something can have its home.
struct SpaceBytes {
  int64_t device = 0;
  int64_t pinned = 0;
  int64_t host = 0;
  int64_t disk = 0;
  friend bool operator==(const SpaceBytes&, const SpaceBytes&) = default;
};

// What a run may take of each; 0: what it needs.
struct Budget {
  int64_t device = 0;
  int64_t host = 0;  // pinned or not
  int64_t disk = 0;

  bool given() const { return device > 0 || host > 0 || disk > 0; }
  bool holds(const SpaceBytes& bytes) const {
    const auto fits = [](int64_t budget, int64_t need) { return budget == 0 || need <= budget; };
    return fits(device, bytes.device) && fits(host, bytes.pinned + bytes.host) && fits(disk, bytes.disk);
  }
};

// Every byte of a run, before the first step: what stays, and behind it the region of the phases.
struct MemoryPlan {
  TrainConfig train;   // what it is the plan of: as it was asked for, with the loss's chunk settled
  Sequence residents;  // on the device
  // What has its home on the host: what copies move, at exactly its size, and the optimizer's states, which stay.
  Sequence pinned;
  Sequence host;
  Ledger disk;            // what has its home there
  DiskTraffic disk_step;  // what a step reads and writes there
  std::array<Sequence, kPhaseCount> phases;
  // What a step moves between device and host, without its update, and whether that goes on beside backward.
  int64_t up_bytes = 0, down_bytes = 0;
  bool updates_early = false;

  const Sequence& operator[](Phase phase) const { return phases[static_cast<size_t>(phase)]; }
  Sequence& operator[](Phase phase) { return phases[static_cast<size_t>(phase)]; }

  int64_t resident_bytes() const { return align_up(residents.plan.bytes()); }
  int64_t transient_bytes() const;
  int64_t total_bytes() const { return resident_bytes() + transient_bytes(); }  // of the device
  int64_t pinned_bytes() const { return align_up(pinned.plan.bytes()); }
  int64_t host_bytes() const { return align_up(host.plan.bytes()); }
  int64_t disk_bytes() const { return disk.peak_bytes(); }
  SpaceBytes bytes() const {
    return {.device = total_bytes(), .pinned = pinned_bytes(), .host = host_bytes(), .disk = disk_bytes()};
  }
  // The phase that needs the most.
  const Sequence& largest() const;
  // Bytes at the peak by class; what packing could not fill is the rest of total_bytes().
  std::array<int64_t, kMemoryClassCount> peak_by_class() const;
  // The blocks alive at the peak, equal names of different layers added up, largest first.
  struct PeakRow {
    std::string name;  // "layers.*.gate_up"
    MemoryClass memory_class = MemoryClass::other;
    int64_t bytes = 0;
    int64_t count = 0;
  };
  std::vector<PeakRow> alive_at_peak() const;
};

// Tokens per chunk of the loss.
int64_t loss_chunk(const ModelConfig& model, const TrainConfig& train);

// `train` with a larger chunk of the loss, where nobody chose one and it costs nothing: what the step needs at its peak
// is often free while the loss runs, and fewer chunks make its products faster and a 16-bit dweight more exact. Of a
// few budgets it takes the largest that adds at most a fiftieth to the plan.
TrainConfig with_larger_chunk(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train);

// Walks the real step in measure mode, and packs it. On a GPU with_larger_chunk; on a CPU larger chunks are no faster.
MemoryPlan plan_memory(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train);

// The study's formulas, to stand beside the plan.
struct StudyFormulas {
  int64_t static_bytes = 0;      // weights, and of what is trained gradients and states
  int64_t static_mixed_16p = 0;  // 16·P
  int64_t checkpoints = 0;       // batch·seq·hidden·bytes·layers
  int64_t logits = 0;            // batch·seq·vocab·4, about three of which an eager framework holds
  int64_t chunk_logits = 0;      // of the paper's chunk
};
StudyFormulas study_formulas(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train);

// The largest batch at this sequence length, and the largest sequence at this batch, whose plan fits; 0: none does.
struct Fit {
  int64_t batch = 0;
  int64_t seq = 0;
};
Fit largest_fit(const ModelConfig& model, const ParameterList& parameters, const TrainConfig& train,
                const Budget& budget);

}  // namespace tigon
