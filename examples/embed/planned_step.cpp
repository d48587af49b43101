// From C++: a sequence of ops in memory that was planned before it ran, so that it never asks for more.
#include <cstdio>
#include <tigon/core/error.hpp>
#include <tigon/memory/arena.hpp>
#include <tigon/ops/adamw.hpp>
#include <tigon/ops/rmsnorm.hpp>
#include <tigon/ops/swiglu.hpp>
#include <vector>

using namespace tigon;

namespace {

constexpr int64_t kTokens = 16, kHidden = 64;

// What lives longer than a step is yours; what lives within one comes from the context, with a name for reports.
struct Model {
  std::vector<float> input = std::vector<float>(kTokens * kHidden, 0.5f);
  std::vector<float> weight = std::vector<float>(kHidden, 1.0f), m = std::vector<float>(kHidden), v = m;

  void step(const Context& ctx) {
    const auto vector = [](std::vector<float>& data) { return Tensor::contiguous(data.data(), DType::f32, {kHidden}); };
    const Tensor x = Tensor::contiguous(input.data(), DType::f32, {kTokens, kHidden});
    const auto taken = [&](const char* name) {
      return OwnedTensor(ctx, name, DType::f32, {kTokens, kHidden}, MemoryClass::activations);
    };
    const OwnedTensor rstd(ctx, "rstd", DType::f32, {kTokens}, MemoryClass::activations);
    const OwnedTensor y = taken("y"), gated = taken("gated");
    ops::rmsnorm_forward(ctx, {.x = x, .weight = vector(weight), .y = y, .rstd = rstd});
    ops::swiglu_forward(ctx, {.a = y, .b = y, .c = gated});
    const OwnedTensor dweight(ctx, "dweight", DType::f32, {kHidden}, MemoryClass::gradients);
    ops::rmsnorm_backward(ctx, {.dy = gated, .x = x, .weight = vector(weight), .rstd = rstd, .dweight = dweight});
    ops::adamw(ctx, {.param = vector(weight), .grad = dweight, .m = vector(m), .v = vector(v)});
  }
};

}  // namespace

int main() try {
  Model model;
  Ledger ledger;
  MeasureArena measure(ledger);
  model.step({.memory = &measure});  // books what it would take and computes nothing
  const Plan plan = Plan::pack(ledger);
  const HostMemory memory(plan.bytes());
  ReplayArena replay(plan, memory.data(), memory.bytes());
  for (int step = 0; step < 3; ++step) {
    model.step({.memory = &replay});
    replay.restart();
  }
  std::printf("%s%lld bytes planned, %lld used\n", peak_report(ledger).c_str(), static_cast<long long>(plan.bytes()),
              static_cast<long long>(replay.used_bytes()));
  return plan.bytes() == replay.used_bytes() && model.weight[0] < 1.0f ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
