// gate and up in one product, the gated activation, and down. Backward writes the gradient of gate_up over gate_up, and
// makes the activation again on its way when it was not kept, over its own gradient: that costs a store, no pass and no
// memory.
#include <algorithm>

#include "model/stages.hpp"

namespace tigon {

namespace {

void gate_up_forward(const BlockRun& run) {
  project_forward(run, BlockWeight::gate_up, run.values[Slot::normed2], run.values[Slot::gate_up]);
}

void gate_up_backward(const BlockRun& run) {
  BlockValues& v = run.values;
  const Tensor dnormed = run.make_grad(Slot::normed2);
  project_backward(run, BlockWeight::gate_up, {.dy = v.d(Slot::gate_up), .x = v[Slot::normed2], .dx = dnormed});
}

void activation_forward(const BlockRun& run) { gated_forward(run, run.values[Slot::gate_up], run.values[Slot::act]); }

void activation_backward(const BlockRun& run) {
  BlockValues& v = run.values;
  if (v.has(Slot::act)) {
    gated_backward(run, v.d(Slot::act), v[Slot::gate_up], {});
    v.d(Slot::act).reset();
  } else {
    gated_backward(run, v.d(Slot::act), v[Slot::gate_up], v.d(Slot::act));
    v[Slot::act] = std::move(v.d(Slot::act));
  }
  v.d(Slot::gate_up) = std::move(v[Slot::gate_up]);
}

void down_forward(const BlockRun& run) {
  project_forward(run, BlockWeight::down, run.values[Slot::act], run.values[Slot::out]);
}

void down_backward(const BlockRun& run) {
  const Tensor dact = run.make_grad(Slot::act);
  project_backward(run, BlockWeight::down, {.dy = run.values.d(Slot::out), .dx = dact});
}

// Only after the activation's backward is the activation sure to be there.
void down_dweight(const BlockRun& run) {
  project_backward(run, BlockWeight::down, {.dy = run.values.d(Slot::out), .x = run.values[Slot::act]});
}

// The whole MLP, some tokens at a time: gate_up and act exist for one tile only, and backward makes them again.
template <class F>
void for_tiles(const BlockShape& shape, const F& f) {
  for (int64_t begin = 0; begin < shape.tokens(); begin += shape.mlp_tile) {
    f(begin, std::min(shape.tokens(), begin + shape.mlp_tile));
  }
}

// gate_up of a tile, and room for its activation.
struct Tile {
  OwnedTensor gate_up, act;
  Tile(const BlockRun& run, int64_t begin, int64_t end)
      : gate_up(run.ctx, "mlp_tile.gate_up", run.shape.dtype, {end - begin, 2 * run.shape.config.intermediate},
                MemoryClass::activations),
        act(run.ctx, "mlp_tile.act", run.shape.dtype, {end - begin, run.shape.config.intermediate},
            MemoryClass::activations) {
    project_forward(run, BlockWeight::gate_up, run.values[Slot::normed2].view.slice(0, begin, end), gate_up);
  }
};

void tiled_mlp_forward(const BlockRun& run) {
  for_tiles(run.shape, [&](int64_t begin, int64_t end) {
    const Tile tile(run, begin, end);
    gated_forward(run, tile.gate_up, tile.act);
    run.values.tape(Slot::act_tape).clear();
    project_forward(run, BlockWeight::down, tile.act, run.values[Slot::out].view.slice(0, begin, end));
  });
}

void tiled_mlp_backward(const BlockRun& run) {
  BlockValues& v = run.values;
  const Tensor dnormed = run.make_grad(Slot::normed2);
  for_tiles(run.shape, [&](int64_t begin, int64_t end) {
    const Tile tile(run, begin, end);
    if (!run.shape.fused.swiglu) gated_forward(run, tile.gate_up, tile.act);  // for its tape
    const Tensor dout = v.d(Slot::out).view.slice(0, begin, end);
    // Room for the activation holds its gradient first.
    project_backward(run, BlockWeight::down, {.dy = dout, .dx = tile.act});
    gated_backward(run, tile.act, tile.gate_up, tile.act);
    project_backward(run, BlockWeight::down, {.dy = dout, .x = tile.act});
    project_backward(
        run, BlockWeight::gate_up,
        {.dy = tile.gate_up, .x = v[Slot::normed2].view.slice(0, begin, end), .dx = dnormed.slice(0, begin, end)});
  });
}

}  // namespace

Stage gate_up_stage(const BlockShape& shape) {
  return {.id = StageId::gate_up,
          .reads = {Slot::normed2},
          .writes = {Slot::gate_up},
          .backward_reads = shape.trains(BlockWeight::gate_up) ? SlotSet{Slot::normed2} : SlotSet{},
          .grad_reads = {Slot::gate_up},
          .forward = gate_up_forward,
          .backward = gate_up_backward};
}

Stage activation_stage(const BlockShape& shape) {
  Stage stage{.id = StageId::activation,
              .reads = {Slot::gate_up},
              .writes = {Slot::act},
              .backward_reads = {Slot::gate_up},
              .backward_makes = {Slot::act},
              .grad_reads = {Slot::act},
              .forward = activation_forward,
              .backward = activation_backward};
  if (!shape.fused.swiglu) {
    stage.writes |= {Slot::act_tape};
    stage.backward_reads |= {Slot::act_tape};
  }
  return stage;
}

Stage down_stage(const BlockShape& shape) {
  Stage stage{.id = StageId::down,
              .reads = {Slot::act},
              .writes = {Slot::out},
              .backward_reads = {},
              .grad_reads = {Slot::out},
              .forward = down_forward,
              .backward = down_backward};
  if (shape.trains(BlockWeight::down)) {
    stage.dweight_reads = {Slot::act};
    stage.dweight = down_dweight;
  }
  return stage;
}

Stage tiled_mlp_stage() {
  return {.id = StageId::mlp,
          .reads = {Slot::normed2},
          .writes = {Slot::out},
          .backward_reads = {Slot::normed2},
          .grad_reads = {Slot::out},
          .forward = tiled_mlp_forward,
          .backward = tiled_mlp_backward};
}

}  // namespace tigon
