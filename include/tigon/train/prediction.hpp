#pragma once

#include "tigon/train/planner.hpp"

namespace tigon {

// What a machine does at most, measured. 0: not measured.
struct Rates {
  double gemm = 0;  // FLOP/s
  double copy = 0;  // bytes per second, read and written, of the device's memory; where a step is recorded
  // Bytes per second to and from the device, and parameters per second of the host's AdamW; where something is away.
  double up = 0, down = 0, host_update = 0;
  // Bytes per second from and to the disk; where something is there.
  double disk_read = 0, disk_write = 0;
};

// A step's time by measured rates: each of these in seconds, as if it ran alone. Products alone count as computing, so
// it is the least that a step can take.
struct Prediction {
  double seconds = 0;  // of the step, with what runs side by side; 0: not known
  double compute = 0;
  double up = 0, down = 0;  // copies, without those of updates
  double update = 0;        // beside the step; 0 where it is a part of it
  double disk = 0;          // what the disk does, all of it beside the step
};
Prediction predict_step(const ModelConfig& model, const MemoryPlan& plan, const Rates& rates);

// FLOPs of one step: the products of forward and backward, and attention's, without recompute.
double step_flops(const ModelConfig& model, const TrainConfig& train);
// Of what is computed again: by backward, and of logits that come in panels.
double recompute_flops(const ModelConfig& model, const TrainConfig& train);

}  // namespace tigon
