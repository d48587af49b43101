// A step's time by rates, and the bytes that it is predicted from.
#include "tigon/train/prediction.hpp"

#include <gtest/gtest.h>

#include "train/small_model.hpp"

namespace tigon::test {
namespace {

TEST(Prediction, PlannedBytesAreTheBytesThatStepsMove) {
  const ModelConfig model = small_model();
  for (const char* homes : {"all", "all+checkpoints", "optimizer", "checkpoints=host"}) {
    for (const Order order : {Order::batches, Order::layers}) {
      for (const int64_t accumulate : {1, 3}) {
        TrainConfig train = small_run();
        train.memory.homes = homes_from_string(homes);
        train.memory.order = order;
        train.accumulate = accumulate;
        Trainer trainer(model, train);
        trainer.initialize();
        constexpr int64_t kSteps = 3;
        for (int64_t step = 0; step < kSteps; ++step) {
          trainer.submit(small_batch(model, train, step));
          (void)trainer.collect();
        }
        trainer.finish();
        // Beside them the host's update sends weights that stay on the device, and gets the clipping factor.
        const bool updates = train.memory.moves_updates(), stay = train.memory.homes.weights == Home::device;
        const int64_t sent = updates && stay ? 4 * trainer.parameters().elements() : 0, factor = updates ? 4 : 0;
        const std::string what = std::string(homes) + " " + std::to_string(accumulate);
        EXPECT_EQ(trainer.traffic().up_bytes, kSteps * (trainer.plan().up_bytes + sent)) << what;
        EXPECT_EQ(trainer.traffic().down_bytes, kSteps * (trainer.plan().down_bytes + factor)) << what;
      }
    }
  }
}

TEST(Prediction, IsWhatTakesLongest) {
  const ModelConfig model = small_model();
  const ParameterList parameters(model);
  TrainConfig train = small_run();
  train.precision = precision_from_string("bf16");
  const Rates rates{.gemm = 1e12, .up = 1e9, .down = 2e9, .host_update = 1e8};
  const auto predict = [&](const Rates& rates) {
    return predict_step(model, plan_memory(model, parameters, train), rates);
  };
  EXPECT_EQ(predict({}).seconds, 0);
  const double flops = step_flops(model, train);
  EXPECT_DOUBLE_EQ(predict(rates).seconds, flops / 1e12);
  train.memory.recompute = recompute_from_string("block");
  const double again = recompute_flops(model, train);
  EXPECT_GT(again, 0);
  EXPECT_LT(again, flops / 3);
  EXPECT_DOUBLE_EQ(predict(rates).seconds, (flops + again) / 1e12);

  train.memory.chunk.lean = true;
  EXPECT_DOUBLE_EQ(recompute_flops(model, train) - again, 2.0 * 24 * 61 * 18) << "the lean loss's fourth product";
  train.memory.chunk.lean = false;

  train.memory.homes = homes_from_string("all,checkpoints=nvme");
  EXPECT_EQ(predict(rates).seconds, 0) << "the disk was not measured";
  Rates slow = rates;
  slow.disk_read = slow.disk_write = 1e3;
  EXPECT_DOUBLE_EQ(predict(slow).seconds, predict(slow).disk);

  train.memory.homes = homes_from_string("all");
  EXPECT_EQ(predict({.gemm = 1e12}).seconds, 0) << "copies were not measured";
  const auto by = [&](Updater updater) {
    train.memory.updater = updater;
    return predict(rates);
  };
  const auto count = static_cast<double>(parameters.elements());
  const Prediction cpu = by(Updater::cpu), gpu = by(Updater::gpu), both = by(Updater::both);
  EXPECT_DOUBLE_EQ(cpu.update, count / 1e8);
  EXPECT_DOUBLE_EQ(gpu.update, count * 14 / 1e9);  // master, m, v and the gradient come
  EXPECT_DOUBLE_EQ(both.update, 1 / (1 / cpu.update + 1 / gpu.update));
  EXPECT_DOUBLE_EQ(gpu.up, static_cast<double>(plan_memory(model, parameters, train).up_bytes) / 1e9);
  // Here the update is longer than anything else. It hides behind forward, and without clipping behind all of the step.
  EXPECT_GT(gpu.seconds, gpu.update);
  train.clip = 0;
  EXPECT_DOUBLE_EQ(by(Updater::gpu).seconds, gpu.update);
  train.clip = 1;
  const Prediction fast = predict({.gemm = 1e3, .up = 1e15, .down = 1e15, .host_update = 1e15});
  EXPECT_DOUBLE_EQ(fast.seconds, fast.compute);
}

}  // namespace
}  // namespace tigon::test
