// Adapters beside a model in NF4. What its numbers are is held against bitsandbytes in test_qlora.py.
#include <gtest/gtest.h>

#include "ops/expect_error.hpp"
#include "tigon/ops/nf4.hpp"
#include "tigon/train/advice.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

TrainConfig small_qlora() {
  TrainConfig train = small_run();
  train.lora = lora_from_string("r=3");
  train.base = BaseFormat::nf4;
  train.precision = precision_from_string("bf16");
  return train;
}

std::vector<double> losses(const ModelConfig& model, const TrainConfig& train) {
  Trainer trainer(model, train);
  trainer.initialize();
  std::vector<double> list;
  for (int64_t step = 0; step < 3; ++step) {
    trainer.submit(small_batch(model, train, 0));  // the same again: its loss falls
    list.push_back(trainer.collect().loss);
  }
  EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
  return list;
}

TEST(Qlora, EveryPolicyUsesItsPlanAndGivesTheSameLosses) {
  for (const ModelConfig& model : {small_model(), small_qwen3()}) {
    const std::vector<double> expected = losses(model, small_qlora());
    EXPECT_LT(expected.back(), expected.front());
    for (const char* recompute : {"selective", "block"}) {
      for (const char* homes :
           {"none", "optimizer", "states=host,gradients=host,checkpoints=host", "gradients=host,states=nvme",
            "weights=host", "all+checkpoints", "weights=nvme,gradients=host,states=host"}) {
        TrainConfig train = small_qlora();
        train.memory.recompute = recompute_from_string(recompute);
        train.memory.homes = homes_from_string(homes);
        train.memory.disk.piece = kDiskUnit;
        EXPECT_EQ(losses(model, train), expected) << recompute << " " << homes;
      }
    }
  }
}

// What moves is what the format says, and the device holds one layer whole and the codes of the next.
TEST(Qlora, CodesComeWhereWeightsAreAway) {
  ModelConfig model = builtin_model("llama-3.2-1b");
  model.vocab = 1024;  // else the head is most of the peak
  TrainConfig train = small_qlora();
  train.batch = 1;
  train.seq = 8;
  const ParameterList parameters(model, train.lora);
  train.memory.homes.weights = Home::host;
  const MemoryPlan nf4 = plan_memory(model, parameters, train);
  train.base = BaseFormat::full;
  const MemoryPlan whole = plan_memory(model, parameters, train);
  int64_t matrices = 0, codes = 0;
  for (const Parameter& p : parameters.all) {
    if (p.product) matrices += 2 * p.elements(), codes += nf4_bytes(p);
  }
  EXPECT_EQ(whole.up_bytes - nf4.up_bytes, 2 * (matrices - codes));
  EXPECT_LT(nf4.total_bytes(), whole.total_bytes() - matrices / 16 / 2);
}

TEST(Qlora, WeightsTakeWhatTheFormatSays) {
  const ModelConfig model = small_model();
  TrainConfig train = small_qlora();
  const ParameterList parameters(model, train.lora);
  int64_t less = 0;
  for (const Parameter& p : parameters.all) {
    if (!p.product) continue;
    less += 2 * p.elements() - nf4_bytes(p);
    EXPECT_LT(static_cast<double>(nf4_bytes(p)), 0.55 * static_cast<double>(p.elements()));
  }
  const int64_t nf4 = static_bytes(parameters, train);
  train.base = BaseFormat::full;
  EXPECT_EQ(static_bytes(parameters, train) - nf4, less);
}

TEST(Qlora, IsAdvisedWithItsBytes) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  TrainConfig train;
  train.batch = 1;
  train.precision = precision_from_string("bf16");
  const ParameterList parameters(model);
  for (const Device meant : {Device{}, Device{DeviceKind::cuda, 0}}) {
    const std::vector<Advice> list = advice(model, parameters, train, meant);
    ASSERT_GE(list.size(), 2U);
    const Advice &lora = list[list.size() - 2], &qlora = list.back();
    // Instead of what was advised before and does not go with adapters, or is not needed beside them.
    EXPECT_EQ(lora.flag,
              "--lora r=16" + std::string(meant.kind == DeviceKind::cpu ? " --optimizer adamw" : " --offload none"));
    EXPECT_EQ(qlora.flag, "--base nf4");
    // 0.97 G parameters in blocks: from 16 bits to 4.13, less one layer's that are whole.
    EXPECT_NEAR(static_cast<double>(lora.total_bytes - qlora.total_bytes), 0.97e9 * 1.484 - 122e6, 3e7);
  }
}

TEST(Qlora, IsAdvisedWhereWeightsAreAwayToo) {
  const ModelConfig model = builtin_model("llama-3.1-8b");
  TrainConfig train = small_qlora();
  train.base = BaseFormat::full;
  train.memory.homes = homes_from_string("all");
  const std::vector<Advice> list = advice(model, ParameterList(model, train.lora), train, {DeviceKind::cuda, 0});
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(list.back().flag, "--base nf4");
}

TEST(Qlora, WhatMakesNoSenseIsRefused) {
  const ModelConfig model = small_model();
  TrainConfig train = small_qlora();
  train.lora = {};
  expect_error([&] { Trainer(model, train); }, ErrorCode::invalid_argument, "Add --lora");
}

}  // namespace
}  // namespace tigon::test
