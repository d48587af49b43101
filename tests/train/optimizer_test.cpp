// Which states the optimizer keeps of which parameter, and what becomes of a run with few bits of them.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/expect_error.hpp"
#include "tigon/ops/adamw.hpp"
#include "tigon/storage/safetensors.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

std::string names_of(const ModelConfig& model, const TrainConfig& train, const std::string& parameter) {
  const ParameterList list(model);
  std::string names;
  for (size_t i = 0; i < list.all.size(); ++i) {
    if (list.all[i].name != parameter) continue;
    for (const StateSpec& state : optimizer_states(list, static_cast<int>(i), train))
      names += std::string(state.name) + ":" + std::string(to_string(state.dtype)) + " ";
  }
  return names;
}

TEST(Optimizer, SaysWhatItKeeps) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  TrainConfig train;
  train.precision = precision_from_string("bf16");
  EXPECT_EQ(names_of(model, train, "layers.3.qkv"), "master:f32 m:f32 v:f32 ");
  train.optimizer.kind = Optimizer::adamw8;
  const std::string coded = "master:f32 m:u8 v:u8 m_scale:f32 v_scale:f32 ";
  EXPECT_EQ(names_of(model, train, "layers.3.qkv"), coded);
  EXPECT_EQ(names_of(model, train, "layers.3.norm1"), "master:f32 m:f32 v:f32 ");
  EXPECT_EQ(names_of(model, train, "embedding"), "master:f32 m:f32 v:f32 ");
  train.optimizer.embedding_in_8_bits = true;
  EXPECT_EQ(names_of(model, train, "embedding"), coded);
  train.precision = precision_from_string("bf16-sr");
  EXPECT_EQ(names_of(model, train, "layers.3.down"), "m:u8 v:u8 m_scale:f32 v_scale:f32 ");
  EXPECT_EQ(names_of(model, train, "final_norm"), "m:bf16 v:bf16 ");
  // Matrices of few elements: 24 x 40 are 960.
  EXPECT_EQ(names_of(small_model(), train, "layers.0.down"), "m:bf16 v:bf16 ");
  train.optimizer.smallest_in_8_bits = 960;
  EXPECT_EQ(names_of(small_model(), train, "layers.0.down"), "m:u8 v:u8 m_scale:f32 v_scale:f32 ");
}

TEST(Optimizer, EightBitsAreSixBytesAParameter) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  TrainConfig train;
  train.precision = precision_from_string("bf16-sr");
  train.optimizer.kind = Optimizer::adamw8;
  train.optimizer.embedding_in_8_bits = true;
  const double each = static_cast<double>(static_bytes(parameters, train)) / static_cast<double>(parameters.elements());
  EXPECT_NEAR(each, 6 + 2 * 4.0 / 256, 1e-3);  // 6.03; norms have two bytes more
  // The plan's states are these bytes, and what lies between the tensors.
  train.batch = 1;
  train.seq = 128;
  const MemoryPlan plan = plan_memory(model, parameters, train);
  const int64_t planned = plan.residents.ledger.peak_by_class()[static_cast<size_t>(MemoryClass::states)];
  const int64_t states = state_bytes(parameters, train);
  EXPECT_GE(planned, states);
  EXPECT_LT(planned, states + (int64_t{1} << 20));
}

TEST(Optimizer, EightBitsLearnABatchByHeart) {
  for (const std::string& precision : precision_names()) {
    double last[2] = {};
    for (const Optimizer kind : {Optimizer::adamw, Optimizer::adamw8}) {
      TrainConfig train = small_run();
      train.precision = precision_from_string(precision);
      train.optimizer.kind = kind;
      train.optimizer.smallest_in_8_bits = 1;
      train.optimizer.lr = 2e-2;
      train.schedule.decay = Decay::constant;
      Trainer trainer(small_model(), train);
      trainer.initialize();
      double& loss = last[static_cast<size_t>(kind)];
      for (int i = 0; i < 60; ++i) {
        trainer.submit(small_batch(small_model(), train, 0));
        loss = trainer.collect().loss;
      }
      EXPECT_EQ(trainer.used(), trainer.plan().bytes());
    }
    EXPECT_NEAR(last[1], last[0], 0.25) << precision;
    EXPECT_NE(last[1], last[0]) << precision;
  }
}

TEST(Optimizer, CheckpointsOfAnotherAreRefused) {
  const TemporaryFolder folder;
  TrainConfig train = small_run();
  train.optimizer.smallest_in_8_bits = 1;
  Trainer adamw(small_model(), train);
  adamw.initialize();
  adamw.save_checkpoint(folder / "adamw", {});
  train.optimizer.kind = Optimizer::adamw8;
  Trainer adamw8(small_model(), train);
  adamw8.initialize();
  adamw8.save_checkpoint(folder / "adamw8", {});
  const TensorFiles states = TensorFiles::open(folder / "adamw8" / "state.safetensors");
  const StoredTensor* codes = states.find("layers.1.down.m");
  ASSERT_NE(codes, nullptr);
  EXPECT_EQ(codes->dtype, DType::u8);
  EXPECT_EQ(codes->sizes, (std::vector<int64_t>{24, 40}));
  const StoredTensor* scales = states.find("layers.1.down.m_scale");
  ASSERT_NE(scales, nullptr);
  EXPECT_EQ(scales->sizes, std::vector<int64_t>{4});  // blocks of 256 of 960
  expect_error([&] { adamw8.restore_checkpoint(folder / "adamw", {}); }, ErrorCode::invalid_argument, "--optimizer");
  expect_error([&] { adamw.restore_checkpoint(folder / "adamw8", {}); }, ErrorCode::invalid_argument, "--optimizer");
}

TEST(Optimizer, NamesAreReadAsTheyAreWritten) {
  for (const std::string& name : optimizer_names()) EXPECT_EQ(to_string(optimizer_from_string(name)), name);
  expect_error([] { (void)optimizer_from_string("adam9"); }, ErrorCode::invalid_argument, "adamw, adamw8");
}

}  // namespace
}  // namespace tigon::test
