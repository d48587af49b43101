// What ran on the GPU, by CUPTI, and that recording changes nothing else. Where there is no CUPTI the first test says
// so.
#include <gtest/gtest.h>

#include <map>

#include "gpu/gpu_fixture.hpp"
#include "gpu/gpu_run.hpp"
#include "tigon/trace/chrome_trace.hpp"
#include "tigon/trace/recorder.hpp"

namespace tigon::test {
namespace {

class GpuTrace : public GpuTest {};

// Six steps, of which the fourth and fifth are recorded: graphs run before and after them.
std::string run_recorded(const TrainConfig& train, Recorder* recorder) {
  Trainer trainer(gpu_model(), train);
  if (recorder != nullptr) trainer.record(*recorder);
  trainer.initialize();
  (void)losses(trainer, 0, 3);
  trainer.finish();
  if (recorder != nullptr) recorder->begin(4, true);
  (void)losses(trainer, 3, 5);
  trainer.finish();
  if (recorder != nullptr) recorder->end(5);
  (void)losses(trainer, 5, 6);
  EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
  return state_of(trainer);
}

TEST_F(GpuTrace, EveryKernelBelongsToAnOpOfItsStep) {
  struct Case {
    const char* offload;
    Updater updater;
  };
  for (const auto& [offload, updater] : {Case{"none", Updater::automatic}, Case{"all+checkpoints", Updater::cpu},
                                         Case{"all+checkpoints", Updater::gpu}}) {
    TrainConfig train = gpu_run("bf16");
    train.memory.homes = homes_from_string(offload);
    train.memory.updater = updater;
    Recorder recorder;
    const std::string recorded = run_recorded(train, &recorder);
    EXPECT_TRUE(recorded == run_recorded(train, nullptr)) << offload;
    const Recording& r = recorder.recording();
    const MemoryPlan plan = plan_memory(gpu_model(), ParameterList(gpu_model()), train);
    EXPECT_EQ(r.peak_bytes(), plan.residents.ledger.peak_bytes() + plan.largest().ledger.peak_bytes());
    if (!r.note.empty()) GTEST_SKIP() << r.note;
    EXPECT_FALSE(r.cut);
    EXPECT_FALSE(r.description.name.empty());
    std::map<std::string, int> kernels_of;
    std::map<int64_t, int> calls, works;
    int copies = 0, outside = 0;
    for (const DeviceActivity& a : r.activities) {
      ASSERT_GE(a.scope, 0);
      ASSERT_LT(a.scope, static_cast<int64_t>(r.scopes.size()));
      EXPECT_LE(a.begin, a.end);
      const RecordedScope& scope = r.scopes[static_cast<size_t>(a.scope)];
      if (a.kind == DeviceActivity::Kind::call) {
        ++calls[a.correlation];
        // By the same clock: the call was made within its scope.
        outside += a.begin < scope.begin - 20000 || a.end > scope.end + 20000 ? 1 : 0;
        continue;
      }
      ++works[a.correlation];
      EXPECT_GE(a.end, scope.begin);
      copies += a.kind == DeviceActivity::Kind::copy ? 1 : 0;
      if (a.kind == DeviceActivity::Kind::kernel) ++kernels_of[r.name(scope.name)];
    }
    EXPECT_LT(outside, 5) << offload;
    for (const auto& [correlation, count] : works) EXPECT_EQ(calls[correlation], 1) << offload;
    for (const char* op :
         {"linear_forward", "linear_backward", "attention_forward", "attention_backward", "global_norm"})
      EXPECT_GE(kernels_of[op], 2) << op << " " << offload;
    EXPECT_EQ(kernels_of["adamw"] > 0, updater != Updater::cpu);
    EXPECT_EQ(copies > 20, std::string(offload) != "none");
    const TemporaryFolder folder;
    write_chrome_trace(folder / "gpu.pt.trace.json.gz", r);
  }
}

TEST_F(GpuTrace, RangesOfNvtxChangeNothing) {
  const TrainConfig train = gpu_run("bf16");
  Trainer plain(gpu_model(), train), marked(gpu_model(), train);
  marked.mark_ranges();
  plain.initialize();
  marked.initialize();
  EXPECT_EQ(losses(plain, 0, 4), losses(marked, 0, 4));
}

}  // namespace
}  // namespace tigon::test
