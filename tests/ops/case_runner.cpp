#include "ops/case_runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"

namespace tigon::test {

using bench::OpCase;
using bench::Role;
using bench::Slot;

namespace {

constexpr std::byte kSurroundings{0xff};  // what no tensor has

const char* name_of(Layout layout) {
  return layout == Layout::packed ? "" : layout == Layout::shifted ? " shifted" : " odd layout";
}

double round_to(double value, DType dtype) {
  switch (dtype) {
    case DType::f32: return static_cast<float>(value);
    case DType::bf16: return static_cast<double>(bf16(value));
    case DType::f16: return static_cast<double>(f16(value));
    default: return value;
  }
}

void write(const Tensor& t, int64_t offset, double value) {
  switch (t.dtype) {
    case DType::f32: t.as<float>()[offset] = static_cast<float>(value); break;
    case DType::bf16: t.as<bf16>()[offset] = bf16(value); break;
    case DType::f16: t.as<f16>()[offset] = f16(value); break;
    case DType::f64: t.as<double>()[offset] = value; break;
    case DType::i32: t.as<int32_t>()[offset] = static_cast<int32_t>(value); break;
    case DType::i64: t.as<int64_t>()[offset] = static_cast<int64_t>(value); break;
    case DType::u8: t.as<uint8_t>()[offset] = static_cast<uint8_t>(value); break;
  }
}

double read(const Tensor& t, int64_t offset) {
  switch (t.dtype) {
    case DType::f32: return t.as<float>()[offset];
    case DType::bf16: return static_cast<double>(t.as<bf16>()[offset]);
    case DType::f16: return static_cast<double>(t.as<f16>()[offset]);
    case DType::f64: return t.as<double>()[offset];
    case DType::i32: return t.as<int32_t>()[offset];
    case DType::i64: return static_cast<double>(t.as<int64_t>()[offset]);
    case DType::u8: return t.as<uint8_t>()[offset];
  }
  return 0;
}

int64_t element_offset(const Tensor& t, int64_t element) {
  int64_t offset = 0;
  for (int d = t.rank - 1; d >= 0; --d) {
    offset += element % t.sizes[d] * t.strides[d];
    element /= t.sizes[d];
  }
  return offset;
}

double fill_value(const bench::Fill& fill, Role role, const RandomStream& random, int64_t element) {
  if (fill.value) return fill.value(element);
  if (role == Role::index || role == Role::code) {
    if (fill.sequence) return static_cast<double>(element % fill.limit);
    if (random.uniform(static_cast<uint64_t>(2 * element)) < fill.ignored) return -100;
    return std::floor(random.uniform(static_cast<uint64_t>(2 * element + 1)) * static_cast<double>(fill.limit));
  }
  const double value = fill.mean + fill.deviation * random.normal(static_cast<uint64_t>(element));
  return fill.grid > 0 ? std::round(value / fill.grid) * fill.grid : value;
}

// f(element) for each element of a tensor, by all cores where there are many: at the sizes of models a test spends most
// of its time here.
template <class F>
void for_each_element(const Tensor& t, const F& f) {
  const int64_t elements = t.elements();
  const int64_t parts = elements < 1 << 16 ? 1 : std::max(1u, std::thread::hardware_concurrency());
  const auto run = [&](int64_t part) {
    for (int64_t e = elements * part / parts; e < elements * (part + 1) / parts; ++e) f(e);
  };
  std::vector<std::jthread> helpers;
  for (int64_t part = 1; part < parts; ++part) helpers.emplace_back(run, part);
  run(0);
}

// Every f16/bf16 result of `got` against `exact`, in units of its own type.
void compare(const std::string& what, const Tensor& t, const std::vector<double>& got, const std::vector<double>& exact,
             DType storage, const OpCase& op_case, bool rounded_inside = false) {
  ASSERT_EQ(got.size(), exact.size()) << what;
  if (is_index(t.dtype)) {
    // Where what the index was searched in was rounded to 16 bits, values may have become equal: another is then first.
    if (rounded_inside && storage != DType::f32) return;
    EXPECT_EQ(got, exact) << what;
    return;
  }
  if (t.dtype == DType::u8) {  // the nearest of two by f32 arithmetic may be the other one
    for (size_t i = 0; i < got.size(); ++i) ASSERT_LE(std::abs(got[i] - exact[i]), 1) << what << " element " << i;
    return;
  }
  double squares = 0;
  for (const double e : exact) squares += e * e;
  const double rms = std::sqrt(squares / std::max<double>(1.0, static_cast<double>(exact.size())));
  // A statistic in f32 still comes from f32 arithmetic on storage-type inputs: the inputs are identical, so f32's unit.
  const double unit = t.dtype == storage || rounded_inside ? epsilon(storage) : epsilon(DType::f32) * 16;
  // In f64 only formulas are compared: another order of the same sums is fine, another term is not.
  const double arithmetic = storage == DType::f64 ? 1e-11 : op_case.arithmetic_tolerance * epsilon(DType::f32);
  const double relative = std::max(op_case.tolerance * unit, arithmetic);
  // Below 2^-14 the values of f16 stand 2^-24 apart, however small they are: a rounding is off by half of that.
  const double apart = t.dtype == DType::f16 ? op_case.roundings * 0x1p-25 : 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double allowed = relative * (std::abs(exact[i]) + rms + op_case.cancelling) + apart;
    ASSERT_LE(std::abs(got[i] - exact[i]), allowed)
        << what << " element " << i << ": got " << got[i] << ", exact " << exact[i];
  }
}

Context context_with(MemorySource& memory, int threads = 0) {
  Context ctx;
  ctx.memory = &memory;
  ctx.threads = threads;
  return ctx;
}

}  // namespace

CaseData::CaseData(const OpCase& op_case, DType dtype, DType rounding, Layout layout, Device device)
    : case_(op_case), dtype_(dtype), device_(device) {
  uint32_t id = 0;
  const auto fill = [&](const Tensor& t, const Slot& slot) {
    const RandomStream random{.seed = 7, .step = 0, .tensor = id++};
    for_each_element(t, [&](int64_t e) {
      double value = fill_value(slot.fill, slot.role, random, e);
      if (slot.role == Role::storage) value = round_to(value, rounding);
      if (slot.role == Role::statistic) value = round_to(value, DType::f32);
      write(t, element_offset(t, e), value);
    });
  };
  for (const Slot& slot : case_.inputs) fill(allocate(slot, slot.name, layout), slot);
  for (const Slot& slot : case_.outputs) {
    (void)allocate(slot, slot.name, layout);
    results_.push_back(slot.name);
  }
  for (const Slot& slot : case_.inputs) {
    if (!slot.in_place) continue;
    results_.push_back(slot.name);
    originals_[slot.name] = values(slot.name);
  }
  if (!case_.backward) return;
  for (const Slot& slot : case_.outputs) {
    if (!slot.differentiable) continue;
    Slot upstream = slot;
    upstream.fill = {};
    fill(allocate(upstream, "d" + slot.name, layout), upstream);
  }
  for (const Slot& slot : case_.inputs) {
    if (!slot.differentiable) continue;
    Slot gradient = slot;
    if (slot.wide_gradient) gradient.role = Role::statistic;
    (void)allocate(gradient, "d" + slot.name, layout);
    results_.push_back("d" + slot.name);
  }
}

Tensor CaseData::allocate(const Slot& slot, const std::string& name, Layout layout) {
  const DType dtype = slot.role == Role::storage     ? dtype_
                      : slot.role == Role::statistic ? (dtype_ == DType::f64 ? DType::f64 : DType::f32)
                      : slot.role == Role::code      ? DType::u8
                      : slot.role == Role::place     ? DType::i32
                                                     : DType::i64;
  const int64_t unit = size_of(dtype);
  Tensor t = Tensor::contiguous(nullptr, dtype, slot.sizes);
  int64_t elements = std::max<int64_t>(1, t.elements());
  int64_t first = 0;
  if (layout != Layout::packed) {
    first = 1;
    elements += 3;  // nobody's
    if (layout == Layout::odd && slot.role == Role::storage && t.rank >= 2) {
      int64_t stride = t.sizes[t.rank - 1] + 3;
      for (int d = t.rank - 2; d >= 0; --d) {
        t.strides[d] = stride;
        stride *= t.sizes[d];
      }
      elements = stride;
    }
  }
  memory_.emplace_back(static_cast<size_t>((elements + first) * unit + kMemoryAlignment), kSurroundings);
  auto address = reinterpret_cast<uintptr_t>(memory_.back().data());
  address += -address % kMemoryAlignment;
  t.data = reinterpret_cast<std::byte*>(address) + first * unit;
  tensors_.set(name, t);
  if (device_.kind != DeviceKind::cpu) {
    twins_.push_back(
        {DeviceMemory(device_, (elements + first) * unit), static_cast<std::byte*>(t.data) - first * unit, t});
    Tensor twin = t;
    twin.data = twins_.back().memory.data() + first * unit;
    twin.device = device_;
    device_tensors_.set(name, twin);
  }
  return t;
}

void CaseData::restore_inputs(const Context& ctx) {
  if (ctx.measuring()) return;
  for (const auto& [name, original] : originals_) {
    for (size_t e = 0; e < original.size(); ++e) set_value(name, static_cast<int64_t>(e), original[e]);
  }
}

std::vector<std::string> CaseData::results(Variant variant) const {
  std::vector<std::string> names = results_;
  if (variant == Variant::unfused) {
    std::erase_if(names, [&](const std::string& name) {
      return std::any_of(case_.outputs.begin(), case_.outputs.end(),
                         [&](const Slot& slot) { return slot.fused_only && slot.name == name; });
    });
  }
  return names;
}

void CaseData::run(const Context& ctx, Variant variant) {
  restore_inputs(ctx);
  upload(ctx);
  run_ops(ctx, variant);
  download(ctx);
}

void CaseData::run_full(const Context& ctx) {
  upload(ctx);
  case_.full(ctx, used());
  download(ctx);
}

void CaseData::upload(const Context& ctx) {
  if (ctx.measuring()) return;
  for (const Twin& twin : twins_) device_copy(ctx, twin.memory.data(), twin.host, twin.memory.bytes());
  if (!twins_.empty()) synchronize(ctx);
}

void CaseData::run_ops(const Context& ctx, Variant variant) {
  if (variant == Variant::fused) {
    case_.forward(ctx, used());
    if (case_.backward) case_.backward(ctx, used());
  } else {
    ops::unfused::Tape tape;
    case_.unfused_forward(ctx, used(), tape);
    if (case_.unfused_backward) case_.unfused_backward(ctx, used(), tape);
  }
}

void CaseData::download(const Context& ctx) {
  if (ctx.measuring()) return;
  for (const Twin& twin : twins_) device_copy(ctx, twin.host, twin.memory.data(), twin.memory.bytes());
  if (!twins_.empty()) synchronize(ctx);
}

std::vector<double> CaseData::values(const std::string& name) const {
  const Tensor t = tensors_[name];
  std::vector<double> out(static_cast<size_t>(t.elements()));
  for_each_element(t, [&](int64_t e) { out[static_cast<size_t>(e)] = read(t, element_offset(t, e)); });
  return out;
}

void CaseData::set_value(const std::string& name, int64_t element, double value) {
  const Tensor t = tensors_[name];
  write(t, element_offset(t, element), value);
}

bool CaseData::surroundings_untouched() const {
  for (const Twin& twin : twins_) {
    std::vector<std::byte> rest(twin.host, twin.host + twin.memory.bytes());
    const auto unit = static_cast<size_t>(size_of(twin.tensor.dtype));
    std::byte* first = rest.data() + (static_cast<std::byte*>(twin.tensor.data) - twin.host);
    for_each_element(twin.tensor, [&](int64_t e) {
      std::fill_n(first + static_cast<size_t>(element_offset(twin.tensor, e)) * unit, unit, kSurroundings);
    });
    if (!std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == kSurroundings; })) return false;
  }
  return true;
}

std::vector<std::vector<std::byte>> CaseData::result_bits() const {
  std::vector<std::vector<std::byte>> all;
  for (const std::string& name : results_) {
    const Tensor t = tensors_[name];
    const int64_t unit = size_of(t.dtype);
    std::vector<std::byte> bits(static_cast<size_t>(t.elements() * unit));
    for (int64_t e = 0; e < t.elements(); ++e) {
      std::memcpy(bits.data() + e * unit, static_cast<std::byte*>(t.data) + element_offset(t, e) * unit,
                  static_cast<size_t>(unit));
    }
    all.push_back(std::move(bits));
  }
  return all;
}

void check_finite_differences(const OpCase& op_case) {
  SCOPED_TRACE(op_case.name());
  if (!op_case.backward) return;
  HeapArena heap;
  const Context ctx = context_with(heap);
  CaseData data(op_case, DType::f64, DType::f64);
  data.run(ctx);
  // The scalar whose gradient backward gives: Σ upstream·output.
  const auto objective = [&] {
    op_case.forward(ctx, data.tensors());
    double sum = 0;
    for (const Slot& slot : op_case.outputs) {
      if (!slot.differentiable) continue;
      const auto value = data.values(slot.name), upstream = data.values("d" + slot.name);
      sum += std::inner_product(value.begin(), value.end(), upstream.begin(), 0.0);
    }
    return sum;
  };
  for (const Slot& slot : op_case.inputs) {
    if (!slot.differentiable) continue;
    const auto gradient = data.values("d" + slot.name);
    const auto original = data.values(slot.name);
    double largest = 1e-3;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    const auto count = static_cast<int64_t>(gradient.size());
    const int64_t stride = std::max<int64_t>(1, count / 40) | 1;  // odd, so that columns vary
    for (int64_t e = 0; e < count; e += stride) {
      const double x = original[static_cast<size_t>(e)];
      const double h = 1e-4 * std::max(1.0, std::abs(x));
      const auto shifted = [&](double by) {
        data.set_value(slot.name, e, x + by);
        return objective();
      };
      // Fourth order, so that strongly curved spots (a row of one element) do not need a loose tolerance.
      const double numeric = (8 * (shifted(h) - shifted(-h)) - (shifted(2 * h) - shifted(-2 * h))) / (12 * h);
      data.set_value(slot.name, e, x);
      ASSERT_NEAR(gradient[static_cast<size_t>(e)], numeric, 2e-6 * largest) << "d" << slot.name << " element " << e;
    }
  }
}

void check_against_reference(const OpCase& op_case, DType dtype, Variant variant, Layout layout) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)) + (variant == Variant::unfused ? " unfused" : "") +
               name_of(layout));
  HeapArena heap;
  const Context ctx = context_with(heap);
  CaseData exact(op_case, DType::f64, dtype);
  exact.run(ctx);
  CaseData got(op_case, dtype, dtype, layout);
  got.run(ctx, variant);
  const bool rounded_inside = variant == Variant::unfused && op_case.unfused_rounds;
  OpCase judged = op_case;
  if (variant == Variant::unfused && op_case.unfused_tolerance > 0) judged.tolerance = op_case.unfused_tolerance;
  for (const std::string& name : got.results(variant)) {
    compare(name, got.tensors()[name], got.values(name), exact.values(name), dtype, judged, rounded_inside);
  }
}

void check_full_call(const OpCase& op_case, DType dtype) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)) + " in one call");
  HeapArena heap;
  const Context ctx = context_with(heap);
  CaseData exact(op_case, DType::f64, dtype);
  exact.run_full(ctx);
  CaseData got(op_case, dtype, dtype);
  got.run_full(ctx);
  for (const std::string& name : got.results()) {
    compare(name, got.tensors()[name], got.values(name), exact.values(name), dtype, op_case);
  }
}

void check_thread_counts(const OpCase& op_case, DType dtype) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)));
  HeapArena heap;
  CaseData one(op_case, dtype, dtype);
  one.run(context_with(heap, 1));
  for (const int threads : {2, 3, 7}) {
    CaseData several(op_case, dtype, dtype);
    several.run(context_with(heap, threads));
    EXPECT_EQ(one.result_bits(), several.result_bits()) << threads << " threads";
  }
}

void check_plan(const OpCase& op_case, DType dtype, Variant variant) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)));
  CaseData data(op_case, dtype, dtype);
  Ledger ledger;
  MeasureArena measure(ledger);
  const auto before = data.result_bits();
  data.run(context_with(measure), variant);
  EXPECT_EQ(before, data.result_bits()) << "measure mode must not touch data";
  EXPECT_EQ(ledger.live_bytes(), 0) << "scratch was not given back";

  const Plan plan = Plan::pack(ledger);
  HostMemory memory(plan.bytes());
  ReplayArena replay(plan, memory.data(), memory.bytes());
  for (int step = 0; step < 2; ++step) {
    data.run(context_with(replay), variant);
    replay.restart();
  }
  EXPECT_EQ(replay.used_bytes(), plan.bytes()) << "planned and used bytes differ";

  HeapArena heap;
  CaseData plain(op_case, dtype, dtype);
  plain.run(context_with(heap), variant);
  EXPECT_EQ(plain.result_bits(), data.result_bits()) << "the plan changed the result";
}

namespace {

// A stream of a device and scratch on it: measured, planned, taken once.
class DevicePlan {
 public:
  // `walk` runs the sequence once on the context that it is given.
  DevicePlan(Device device, const std::function<void(const Context&)>& walk)
      : stream_(device),
        plan_(measured(device, walk)),
        memory_(device, plan_.bytes()),
        arena_(plan_, memory_.data(), memory_.bytes(), false) {
    device_fill(context(), memory_.data(), 0xff, memory_.bytes());  // NaN in every type
  }

  Context context() { return {.device = memory_.device(), .stream = stream_.get(), .memory = &arena_}; }
  void restart() { arena_.restart(); }

 private:
  static Plan measured(Device device, const std::function<void(const Context&)>& walk) {
    Ledger ledger;
    MeasureArena measure(ledger);
    walk({.device = device, .memory = &measure});
    EXPECT_EQ(ledger.live_bytes(), 0) << "scratch was not given back";
    return Plan::pack(ledger);
  }

  DeviceStream stream_;
  Plan plan_;
  DeviceMemory memory_;
  ReplayArena arena_;
};

}  // namespace

std::string cannot_run(const OpCase& op_case, Variant variant, Device device, DType dtype) {
  try {
    CaseData data(op_case, dtype, dtype, Layout::packed, device);
    Ledger ledger;
    MeasureArena measure(ledger);
    data.run({.device = device, .memory = &measure}, variant);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return error.what();
    throw;
  }
  return "";
}

void check_on_device(const OpCase& op_case, DType dtype, Variant variant, Layout layout, Device device) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)) + (variant == Variant::unfused ? " unfused" : "") +
               name_of(layout));
  HeapArena heap;
  CaseData exact(op_case, DType::f64, dtype);
  exact.run(context_with(heap));
  CaseData got(op_case, dtype, dtype, layout, device);
  DevicePlan plan(device, [&](const Context& ctx) { got.run(ctx, variant); });
  got.run(plan.context(), variant);
  const bool rounded_inside = variant == Variant::unfused ? op_case.unfused_rounds : op_case.gpu_rounds;
  OpCase judged = op_case;
  if (variant == Variant::unfused && op_case.unfused_tolerance > 0) judged.tolerance = op_case.unfused_tolerance;
  for (const std::string& name : got.results(variant)) {
    compare(name, got.tensors()[name], got.values(name), exact.values(name), dtype, judged, rounded_inside);
  }
  EXPECT_TRUE(got.surroundings_untouched());
}

void check_full_call_on_device(const OpCase& op_case, DType dtype, Device device, Layout layout) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)) + " in one call" + name_of(layout));
  HeapArena heap;
  CaseData exact(op_case, DType::f64, dtype);
  exact.run_full(context_with(heap));
  CaseData got(op_case, dtype, dtype, layout, device);
  DevicePlan plan(device, [&](const Context& ctx) { got.run_full(ctx); });
  got.run_full(plan.context());
  for (const std::string& name : got.results()) {
    compare(name, got.tensors()[name], got.values(name), exact.values(name), dtype, op_case, op_case.gpu_rounds);
  }
  EXPECT_TRUE(got.surroundings_untouched());
}

void check_repeats_on_device(const OpCase& op_case, DType dtype, Device device) {
  SCOPED_TRACE(op_case.name() + " " + std::string(to_string(dtype)));
  CaseData once(op_case, dtype, dtype, Layout::packed, device);
  DevicePlan plan(device, [&](const Context& ctx) { once.run(ctx); });
  once.run(plan.context());
  plan.restart();

  CaseData again(op_case, dtype, dtype, Layout::packed, device);
  again.run(plan.context());
  plan.restart();
  EXPECT_EQ(once.result_bits(), again.result_bits()) << "two runs differ";

  CaseData recorded(op_case, dtype, dtype, Layout::packed, device);
  const Context ctx = plan.context();
  const DeviceGraph graph(ctx, [&] { recorded.run_ops(ctx, Variant::fused); });
  recorded.upload(ctx);
  graph.launch(ctx);
  recorded.download(ctx);
  EXPECT_EQ(once.result_bits(), recorded.result_bits()) << "a run recorded in a graph differs";
}

}  // namespace tigon::test
