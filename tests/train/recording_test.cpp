// Recording a run changes nothing in it, and what is recorded is the plan.
#include <gtest/gtest.h>

#include "tigon/storage/files.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

std::string trained(const TrainConfig& train, Recorder* recorder) {
  const ModelConfig model = small_model();
  Trainer trainer(model, train);
  if (recorder != nullptr) trainer.record(*recorder);
  trainer.initialize();
  const TemporaryFolder folder;
  for (int64_t step = 0; step < 4; ++step) {
    if (recorder != nullptr && step == 1) {
      trainer.finish();
      recorder->begin(2, true);
    }
    trainer.submit(small_batch(model, train, step));
    (void)trainer.collect();
    if (step == 1) trainer.save_checkpoint(folder / "early", {});
    if (recorder != nullptr && step == 2) {
      trainer.finish();
      recorder->end(3);
    }
  }
  trainer.save_checkpoint(folder / "state", {});
  return read_text_file(folder / "state" / "model.safetensors", 1 << 24) +
         read_text_file(folder / "state" / "state.safetensors", 1 << 24);
}

TEST(Recording, ChangesNoBitAndIsThePlan) {
  for (const char* offload : {"none", "optimizer", "all", "all+checkpoints"}) {
    for (const int64_t accumulate : {1, 3}) {
      TrainConfig train = small_run();
      train.memory.homes = homes_from_string(offload);
      train.accumulate = accumulate;
      Recorder recorder;
      EXPECT_TRUE(trained(train, nullptr) == trained(train, &recorder)) << offload;
      const Recording& r = recorder.recording();
      const ModelConfig model = small_model();
      const MemoryPlan plan = plan_memory(model, ParameterList(model), train);
      EXPECT_EQ(r.peak_bytes(), plan.residents.ledger.peak_bytes() + plan.largest().ledger.peak_bytes()) << offload;
      size_t births = plan.residents.plan.blocks().size();
      for (const Phase phase : {Phase::step, Phase::further, Phase::update}) {
        const size_t times = phase == Phase::further ? static_cast<size_t>(accumulate - 1) : 1;
        births += 2 * times * plan[phase].plan.blocks().size();
      }
      EXPECT_EQ(r.blocks.size(), births) << offload << " " << accumulate;
      int saves = 0;
      for (const RecordedScope& scope : r.scopes) {
        EXPECT_GE(scope.end, scope.begin) << r.text(scope);
        saves += r.text(scope) == "save a checkpoint" ? 1 : 0;
      }
      EXPECT_EQ(saves, 1);
    }
  }
}

}  // namespace
}  // namespace tigon::test
