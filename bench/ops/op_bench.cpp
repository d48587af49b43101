#include "op_bench.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>

#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"
#include "timing.hpp"

namespace tigon::bench {

namespace {

DType slot_dtype(const Slot& slot, DType dtype) {
  if (slot.role == Role::index) return DType::i64;
  if (slot.role == Role::place) return DType::i32;
  if (slot.role == Role::code) return DType::u8;
  return slot.role == Role::statistic ? DType::f32 : dtype;
}

// Random numbers without waiting for them: each element picks one of 2^16. In order they would repeat whole rows, and
// how much power a GPU draws, and so its clocks, may depend on the numbers.
void fill(const Tensor& t, const Slot& slot) {
  constexpr int64_t kChoices = 1 << 16;
  const RandomStream random{.seed = 11};
  std::vector<float> choices(kChoices);
  for (int64_t i = 0; i < kChoices; ++i) {
    const auto element = static_cast<uint64_t>(i);
    if (slot.role != Role::index && slot.role != Role::code) {
      choices[static_cast<size_t>(i)] =
          static_cast<float>(slot.fill.mean + slot.fill.deviation * random.normal(element));
    } else if (random.uniform(2 * element) < slot.fill.ignored) {
      choices[static_cast<size_t>(i)] = -100.0f;
    } else {
      choices[static_cast<size_t>(i)] = static_cast<float>(
          static_cast<int64_t>(random.uniform(2 * element + 1) * static_cast<float>(slot.fill.limit)));
    }
  }
  const int64_t count = t.elements();
  uint64_t state = 1;
  for (const char c : slot.name) state = state * 31 + static_cast<unsigned char>(c);  // no two inputs alike
  for (int64_t e = 0; e < count; ++e) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's; the upper bits are the random ones
    const float value = choices[state >> 48];
    switch (t.dtype) {
      case DType::bf16: t.as<bf16>()[e] = bf16(value); break;
      case DType::f16: t.as<f16>()[e] = f16(value); break;
      case DType::i64:
        t.as<int64_t>()[e] = slot.fill.sequence ? e % slot.fill.limit : static_cast<int64_t>(value);
        break;
      case DType::u8: t.as<uint8_t>()[e] = static_cast<uint8_t>(value); break;
      default: t.as<float>()[e] = value; break;
    }
  }
}

// One walk over forward and backward of a case: outputs, then gradients, then everything back. The same sequence is
// measured, planned and timed.
class Walk {
 public:
  Walk(const OpCase& c, DType dtype, bool fused) : case_(c), dtype_(dtype), fused_(fused) {}

  bool one_call() const { return fused_ && case_.full != nullptr; }

  // The marks of one run: before forward, after it, before backward, after it. None without a clock.
  struct Marks {
    size_t forward_begin, forward_end, backward_begin, backward_end;
  };
  Marks run(const Context& ctx, Tensors tensors, Clock* clock) const {
    const auto mark = [&] { return clock != nullptr ? clock->mark() : 0; };
    std::vector<OwnedTensor> held;
    const auto take = [&](const std::vector<Slot>& slots, const char* prefix, MemoryClass memory_class,
                          bool only_differentiable) {
      for (const Slot& slot : slots) {
        if (only_differentiable && !slot.differentiable) continue;
        const bool wide = only_differentiable && slot.wide_gradient;
        held.emplace_back(ctx, prefix + slot.name, wide ? DType::f32 : slot_dtype(slot, dtype_), slot.sizes,
                          memory_class);
        tensors.set(prefix + slot.name, held.back());
      }
    };
    ops::unfused::Tape tape;
    take(case_.outputs, "", MemoryClass::activations, false);
    if (one_call()) take(case_.inputs, "d", MemoryClass::gradients, true);
    Marks marks{};
    marks.forward_begin = mark();
    if (one_call()) {
      case_.full(ctx, tensors);
    } else {
      fused_ ? case_.forward(ctx, tensors) : case_.unfused_forward(ctx, tensors, tape);
    }
    marks.forward_end = marks.backward_begin = marks.backward_end = mark();
    if (one_call() || !has_backward()) return marks;
    take(case_.inputs, "d", MemoryClass::gradients, true);
    marks.backward_begin = mark();
    fused_ ? case_.backward(ctx, tensors) : case_.unfused_backward(ctx, tensors, tape);
    marks.backward_end = mark();
    return marks;
  }

 private:
  bool has_backward() const { return fused_ ? case_.backward != nullptr : case_.unfused_backward != nullptr; }

  const OpCase& case_;
  DType dtype_;
  bool fused_;
};

Work full_work(const OpCase& c, int64_t size) {
  if (c.full_work) return c.full_work(size);
  Work work = c.forward_work(size);
  if (c.backward_work) {
    const Work backward = c.backward_work(size);
    work.bytes += backward.bytes;
    work.flops += backward.flops;
  }
  return work;
}

// Inputs and upstream gradients, filled once per case and dtype: on the host, then sent to where they are used.
struct Inputs {
  std::vector<OwnedTensor> held;
  Tensors tensors;

  Inputs(const Context& ctx, const OpCase& c, DType dtype) {
    const auto add = [&](const Slot& slot, const std::string& name, const Slot& how) {
      held.emplace_back(ctx, name, slot_dtype(slot, dtype), slot.sizes, MemoryClass::other);
      tensors.set(name, held.back());
      if (ctx.measuring()) return;
      if (ctx.device.kind == DeviceKind::cpu) return fill(held.back(), how);
      HeapArena heap;
      const OwnedTensor host({.memory = &heap}, name, slot_dtype(slot, dtype), slot.sizes, MemoryClass::other);
      fill(host, how);
      device_copy(ctx, held.back().view.data, host.view.data, host.view.bytes());
      synchronize(ctx);
    };
    for (const Slot& slot : c.inputs) add(slot, slot.name, slot);
    for (const Slot& slot : c.outputs) {
      Slot upstream = slot;
      upstream.fill = {};
      if (slot.differentiable) add(slot, "d" + slot.name, upstream);
    }
  }
};

// The inputs of each run of a sample. What a case writes over is there once for every run and made anew before each
// sample, so that no run works on what another has left.
class RunInputs {
 public:
  RunInputs(const Context& ctx, const OpCase& c, const Tensors& inputs, int runs)
      : ctx_(ctx), inputs_(inputs), runs_(static_cast<size_t>(runs), inputs) {
    for (const Slot& slot : c.inputs) {
      if (!slot.in_place) continue;
      names_.push_back(slot.name);
      const Tensor from = inputs[slot.name];
      for (Tensors& run : runs_) {
        held_.emplace_back(ctx, slot.name, from.dtype, slot.sizes, MemoryClass::other);
        run.set(slot.name, held_.back());
      }
    }
    restore();
  }

  const Tensors& operator[](int run) const { return runs_[static_cast<size_t>(run)]; }
  bool change() const { return !names_.empty(); }
  void restore() const {
    if (ctx_.measuring()) return;
    for (const std::string& name : names_) {
      const Tensor from = inputs_[name];
      for (const Tensors& run : runs_) {
        if (ctx_.device.kind == DeviceKind::cpu) {
          std::memcpy(run[name].data, from.data, static_cast<size_t>(from.bytes()));
        } else {
          device_copy(ctx_, run[name].data, from.data, from.bytes());
        }
      }
    }
  }

 private:
  Context ctx_;
  Tensors inputs_;
  std::vector<Tensors> runs_;
  std::vector<std::string> names_;
  std::vector<OwnedTensor> held_;
};

// The memory of a plan, where the device wants it.
struct PlanMemory {
  std::optional<HostMemory> host;
  DeviceMemory device;
  std::byte* data;

  PlanMemory(Device where, int64_t bytes)
      : device(where.kind == DeviceKind::cpu ? DeviceMemory() : DeviceMemory(where, bytes)) {
    if (where.kind == DeviceKind::cpu) host.emplace(bytes);
    data = host ? host->data() : device.data();
  }
};

// FLOPs do not count where the GEMM rate is unknown.
double floor_ms(const Work& work, const Ceilings& ceilings) {
  const double bytes = static_cast<double>(work.bytes) / ceilings.copy_bytes_per_second;
  const double flops =
      ceilings.gemm_flops_per_second > 0 ? static_cast<double>(work.flops) / ceilings.gemm_flops_per_second : 0.0;
  return 1e3 * std::max(bytes, flops);
}

// How many runs make a sample that is long enough to be timed on a GPU.
int runs_of_sample(double least_ms) {
  constexpr double kSampleMs = 2.0;
  constexpr int kMostRuns = 64;
  return static_cast<int>(std::clamp(kSampleMs / std::max(least_ms, 1e-6), 1.0, double{kMostRuns}));
}

// Milliseconds of whole runs on a GPU, several to a sample, recorded in a graph: an event beside each kernel, and a
// host that does not keep up, would be timed with kernels of some ten microseconds. The runs follow each other as the
// ops of a step do, over the same memory: what fits into the cache stays there.
std::vector<double> device_samples(const Context& ctx, int samples, int runs, const RunInputs& inputs,
                                   const std::function<void(const Tensors&)>& run) {
  const DeviceGraph graph(ctx, [&] {
    for (int i = 0; i < runs; ++i) run(inputs[i]);
  });
  graph.launch(ctx);
  Clock clock(ctx);
  std::vector<std::pair<size_t, size_t>> marks;
  for (int i = 0; i < samples; ++i) {
    if (inputs.change()) inputs.restore();
    const size_t begin = i > 0 && !inputs.change() ? marks.back().second : clock.mark();
    graph.launch(ctx);
    marks.emplace_back(begin, clock.mark());
  }
  std::vector<double> ms;
  for (const auto& [begin, end] : marks) ms.push_back(clock.ms(begin, end) / runs);
  return ms;
}

Row bench_case(const BenchOptions& options, const OpCase& c, DType dtype, bool fused, const Tensors& inputs,
               const Ceilings& ceilings) {
  const Walk walk(c, dtype, fused);
  Context ctx{.device = options.device, .threads = options.threads};
  const bool on_cpu = options.device.kind == DeviceKind::cpu;
  std::optional<DeviceStream> stream;
  if (!on_cpu) ctx.stream = stream.emplace(options.device).get();
  Clock clock(ctx);
  const Work work = full_work(c, size_of(dtype));
  const double least_ms = floor_ms(work, ceilings);

  Ledger ledger;
  MeasureArena measure(ledger);
  ctx.memory = &measure;
  (void)walk.run(ctx, inputs, nullptr);
  const Plan plan = Plan::pack(ledger);

  const PlanMemory memory(options.device, plan.bytes());
  ReplayArena replay(plan, memory.data, plan.bytes(), on_cpu);
  ctx.memory = &replay;
  HeapArena heap;
  DeviceArena device_heap(options.device);
  Context input_ctx = ctx;
  input_ctx.memory = on_cpu ? static_cast<MemorySource*>(&heap) : &device_heap;
  const int sample_runs = on_cpu ? 1 : runs_of_sample(least_ms);
  const RunInputs run_inputs(input_ctx, c, inputs, sample_runs);
  // The first run on a CPU touches the pages; the first ones on a GPU load the kernels and wake the clocks.
  for (int i = 0; i < (on_cpu ? 1 : 3); ++i) {
    (void)walk.run(ctx, run_inputs[0], nullptr);
    replay.restart();
  }
  if (!on_cpu) synchronize(ctx);
  std::vector<Walk::Marks> runs;
  for (int i = 0; i < options.repeats; ++i) {
    run_inputs.restore();
    runs.push_back(walk.run(ctx, run_inputs[0], &clock));
    replay.restart();
  }
  std::vector<double> forward, backward, full;
  for (const Walk::Marks& marks : runs) {
    forward.push_back(clock.ms(marks.forward_begin, marks.forward_end));
    backward.push_back(clock.ms(marks.backward_begin, marks.backward_end));
    full.push_back(forward.back() + backward.back());
  }
  if (!on_cpu) {
    full = device_samples(ctx, options.repeats, sample_runs, run_inputs, [&](const Tensors& tensors) {
      (void)walk.run(ctx, tensors, nullptr);
      replay.restart();
    });
  }
  if (replay.used_bytes() != plan.bytes()) {
    throw Error(ErrorCode::internal, {.where = c.name(),
                                      .what = "planned and used bytes differ",
                                      .expected = std::to_string(plan.bytes()),
                                      .got = std::to_string(replay.used_bytes())});
  }

  Row row;
  row.op = c.op;
  row.shape = c.shape;
  row.dtype = std::string(to_string(dtype));
  row.device = options.device.kind == DeviceKind::cpu ? "cpu" : "cuda";
  row.provider = fused ? "tigon" : "tigon-unfused";
  row.fwd_ms = walk.one_call() ? 0 : quantile(forward, 0.5);
  row.bwd_ms = walk.one_call() ? 0 : quantile(backward, 0.5);
  row.full_ms = quantile(full, 0.5);
  row.q20_ms = quantile(full, 0.2);
  row.q80_ms = quantile(full, 0.8);
  row.peak_bytes = ledger.peak_bytes();
  row.work = work;
  row.floor_ms = least_ms;
  row.memory_report = peak_report(ledger);
  return row;
}

std::vector<OpCase> wanted_cases(const BenchOptions& options) {
  std::vector<OpCase> cases;
  for (const std::string& op : options.ops) {
    const auto& tables = all_tables();
    if (std::none_of(tables.begin(), tables.end(), [&](const OpTable& t) { return t.op == op; })) {
      std::string known;
      for (const OpTable& t : tables) known += (known.empty() ? "" : ", ") + t.op;
      throw Error(
          ErrorCode::invalid_argument,
          {.where = "--ops", .what = "there is no such op", .expected = "some of " + known, .got = "'" + op + "'"});
    }
  }
  for (const OpTable& table : all_tables()) {
    if (!options.ops.empty() && std::find(options.ops.begin(), options.ops.end(), table.op) == options.ops.end())
      continue;
    for (const std::string& shape : options.shapes.empty() ? table.bench_shapes : options.shapes) {
      cases.push_back(table.make(shape));
    }
  }
  return cases;
}

// What Linux can hand out without pushing anything else out; 0 where it does not say.
int64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    int64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

// The system grants more memory than it has and kills who then touches it: so this is asked before any is taken.
void check_fits_host(const BenchOptions& options, const OpCase& c, DType dtype, bool fused) {
  Ledger ledger;
  MeasureArena measure(ledger);
  const Context ctx{.device = options.device, .threads = options.threads, .memory = &measure};
  const Inputs inputs(ctx, c, dtype);
  const RunInputs run_inputs(ctx, c, inputs.tensors, 1);
  (void)Walk(c, dtype, fused).run(ctx, run_inputs[0], nullptr);
  const int64_t available = available_host_bytes();
  if (available == 0 || ledger.peak_bytes() <= available) return;
  throw Error(ErrorCode::out_of_memory, {.where = c.name() + (fused ? " fused" : " unfused"),
                                         .what = "this shape is too large for the memory of this machine",
                                         .expected = "at most the " + human_bytes(available) + " that are free",
                                         .got = human_bytes(ledger.peak_bytes()),
                                         .fix = "Use a smaller shape."});
}

// The rate measured in this type; on a GPU there is only one.
double gemm_rate(const BenchResult& result, DType dtype) {
  for (const auto& [type, rate] : result.gemm_rates) {
    if (type == dtype) return rate;
  }
  return result.gemm_rates.front().second;
}

}  // namespace

BenchResult bench_ops(const BenchOptions& options, const std::function<void(int, int, const std::string&)>& progress,
                      const std::function<void(const BenchResult&)>& on_row) {
  const std::vector<OpCase> cases = wanted_cases(options);
  const Context ctx{.device = options.device, .threads = options.threads};
  const bool on_cpu = options.device.kind == DeviceKind::cpu;
  HeapArena heap;
  DeviceArena device_heap(options.device);
  Context input_ctx = ctx;
  input_ctx.memory = on_cpu ? static_cast<MemorySource*>(&heap) : &device_heap;

  const auto wanted = [&](const OpCase& c, bool fused) {
    return fused ? options.fused : options.unfused && c.unfused_forward;
  };
  int total = 0;
  for (const OpCase& c : cases) {
    for (const DType dtype : options.dtypes) {
      for (const bool fused : {true, false}) {
        if (!wanted(c, fused)) continue;
        ++total;
        if (on_cpu) check_fits_host(options, c, dtype, fused);
      }
    }
  }
  BenchResult result;
  int done = 0;
  progress(done, total, "measuring this machine's copy bandwidth and GEMM rate");
  result.ceilings.copy_bytes_per_second = measure_copy(ctx);
  for (const DType dtype : options.dtypes) {
    if (on_cpu || result.gemm_rates.empty()) result.gemm_rates.emplace_back(dtype, measure_gemm(ctx, dtype));
  }
  for (const OpCase& c : cases) {
    for (const DType dtype : options.dtypes) {
      const Inputs inputs(input_ctx, c, dtype);
      for (const bool fused : {true, false}) {
        if (!wanted(c, fused)) continue;
        progress(done, total, c.name() + " " + std::string(to_string(dtype)) + (fused ? " fused" : " unfused"));
        // The copy beside each row: machines that are shared change from minute to minute.
        result.ceilings = {measure_copy(ctx), gemm_rate(result, dtype)};
        ++done;
        try {
          result.rows.push_back(bench_case(options, c, dtype, fused, inputs.tensors, result.ceilings));
        } catch (const Error& error) {
          if (on_cpu || error.code() != ErrorCode::unsupported) throw;
          result.skipped.emplace_back(c.name() + (fused ? " fused: " : " unfused: ") + error.what());
          continue;
        }
        on_row(result);
      }
    }
  }
  progress(done, total, "");
  return result;
}

}  // namespace tigon::bench
