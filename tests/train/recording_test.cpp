// Recording a run changes nothing in it, and what is recorded is the plan.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tigon/storage/files.hpp"
#include "tigon/trace/step_times.hpp"
#include "tigon/train/plan_timeline.hpp"
#include "train/small_model.hpp"
#include "train/step_work.hpp"

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

// The births of a timeline, without what they are worth: when and where.
std::vector<std::string> births(const MemoryTimeline& t) {
  std::vector<std::string> list;
  for (const MemoryTimeline::Block& b : t.blocks) {
    list.push_back(t.names[static_cast<size_t>(b.name)] + " " + std::to_string(b.bytes) + " at " +
                   std::to_string(b.offset) + (b.death < 0 ? " stays" : ""));
  }
  return list;
}

std::vector<std::string> phase_names(const MemoryTimeline& t) {
  std::vector<std::string> list;
  for (const MemoryTimeline::Phase& phase : t.phases) {
    EXPECT_LE(phase.begin, phase.end);
    list.push_back(phase.name);
  }
  return list;
}

TEST(Recording, ShowsTheSameMemoryAsThePlan) {
  for (const char* offload : {"none", "all+checkpoints"}) {
    for (const bool fused : {true, false}) {
      for (const int64_t accumulate : {1, 2}) {
        TrainConfig train = small_run();
        train.memory.homes = homes_from_string(offload);
        train.accumulate = accumulate;
        if (!fused) train.fused = fused_from_string("none");
        Recorder recorder;
        (void)trained(train, &recorder);
        const ModelConfig model = small_model();
        const MemoryPlan plan = plan_memory(model, ParameterList(model), train);
        const MemoryTimeline ran = memory_timeline(recorder.recording()), planned = memory_timeline(plan);
        EXPECT_EQ(births(ran), births(planned));
        EXPECT_EQ(phase_names(ran), phase_names(planned));
        EXPECT_EQ(ran.peak_bytes(), planned.peak_bytes());
        EXPECT_EQ(ran.total_bytes, plan.total_bytes());
        EXPECT_EQ(planned.total_bytes, plan.total_bytes());
        const size_t stays = plan.residents.plan.blocks().size();
        for (size_t b = 0; b < ran.blocks.size(); ++b) EXPECT_EQ(ran.blocks[b].place == 0, b < stays);
      }
    }
  }
}

TEST(Recording, AStepsTimesAddUpAndEachPartHasItsWork) {
  for (const auto& [tile, fused] : {std::pair<int64_t, const char*>{0, "all"}, {4, "all"}, {0, "none"}}) {
    TrainConfig train = small_run();
    train.memory.recompute = recompute_from_string("block");
    train.memory.mlp_tile = tile;
    train.fused = fused_from_string(fused);
    Recorder recorder;
    (void)trained(train, &recorder);
    const ModelConfig model = small_model();
    const StepTimes times = step_times(recorder.recording());
    EXPECT_EQ(times.step, 2);
    EXPECT_GT(times.seconds, 0);
    const double sum = std::accumulate(times.rows.begin(), times.rows.end(), 0.0,
                                       [](double all, const StepTimes::Row& row) { return all + row.seconds; });
    EXPECT_NEAR(sum, times.seconds, 1e-9);
    const std::vector<StepWork> work = step_work(model, train, ParameterList(model));
    double flops = 0;
    for (const StepWork& w : work) flops += w.flops;
    EXPECT_NEAR(flops, step_flops(model, train) + recompute_flops(model, train), 1e-6 * flops);
    // Whatever has work has run, and the other way round.
    std::set<std::string> worked, ran;
    for (const StepWork& w : work) worked.insert(w.phase + " " + w.name);
    for (const StepTimes::Row& row : times.rows) {
      if (row.phase != "other") ran.insert(row.phase + " " + row.name);
    }
    EXPECT_EQ(worked, ran) << tile;
  }
}

}  // namespace
}  // namespace tigon::test
