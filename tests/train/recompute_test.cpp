// Dropping and making again changes nothing but the memory and the number of stages that run.
#include <gtest/gtest.h>

#include <numeric>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

struct Outcome {
  std::string gradients;  // the file's bytes
  int64_t stage_runs = 0;
  int64_t planned = 0;
};

Outcome run_once(const ModelConfig& model, const TrainConfig& train) {
  const TemporaryFolder folder;
  Trainer trainer(model, train);
  trainer.initialize();
  trainer.save_next_gradients(folder / "gradients");
  trainer.submit(small_batch(model, train, 0));
  (void)trainer.collect();
  const StageRuns& runs = trainer.stage_runs();
  return {read_text_file(folder / "gradients", 1 << 24), std::accumulate(runs.begin(), runs.end(), int64_t{0}),
          trainer.plan().total_bytes()};
}

// How many stages must run again for a mask, stated without the closure: going backward through the block, which inputs
// of backward are gone. (The activation is made inside its own backward, and down's result is nobody's input.)
int64_t expected_reruns(StageMask mask) {
  const auto dropped = [&](StageId stage) { return (mask & stage_bit(stage)) != 0; };
  int64_t reruns = 0;
  const bool gate_up = dropped(StageId::gate_up);
  const bool norm2 = dropped(StageId::norm2);
  // norm2 again reads attn_out; attn_out is there unless o_proj dropped it.
  const bool o_proj = norm2 && dropped(StageId::o_proj);
  const bool attention = dropped(StageId::attention);
  const bool qkv = dropped(StageId::qkv);
  const bool norm1 = dropped(StageId::norm1);
  for (const bool again : {gate_up, norm2, o_proj, attention, qkv, norm1}) reruns += again ? 1 : 0;
  return reruns;
}

TEST(Recompute, EveryMaskGivesTheSameBits) {
  const ModelConfig model = small_model();
  TrainConfig train = small_run();
  const Outcome plain = run_once(model, train);
  EXPECT_EQ(plain.stage_runs, 8 * model.layers);
  int64_t different = 0;
  for (StageMask mask = 0; mask < 256; ++mask) {
    train.memory.recompute = mask;
    const Outcome outcome = run_once(model, train);
    ASSERT_EQ(outcome.gradients, plain.gradients) << "mask " << mask;
    ASSERT_EQ(outcome.stage_runs, plain.stage_runs + model.layers * expected_reruns(mask)) << "mask " << mask;
    different += outcome.stage_runs != plain.stage_runs;
  }
  // All but those that drop nothing that costs a stage: any of o_proj, activation and down.
  EXPECT_EQ(different, 256 - 8);
}

TEST(Recompute, OtherModelsAndFormsToo) {
  struct Case {
    const char* name;
    ModelConfig model;
    FusedOps fused;
    DType dtype;
  };
  ModelConfig gemma = small_model();
  gemma.activation = Activation::gelu_tanh;
  gemma.norm_offset = 1.0;
  gemma.norm_casting = ops::NormCasting::gemma;
  ModelConfig qwen2 = small_model();
  qwen2.qkv_bias = true;
  const FusedOps none{.rope = false, .swiglu = false, .rmsnorm = false, .flce = false};
  for (const Case& c : {Case{"qwen3", small_qwen3(), {}, DType::f32},
                        {"gemma", gemma, {}, DType::f32},
                        {"qwen2", qwen2, {}, DType::f32},
                        {"unfused", small_model(), none, DType::f32},
                        {"bf16", small_model(), {}, DType::bf16},
                        {"unfused gemma", gemma, none, DType::bf16}}) {
    TrainConfig train = small_run();
    train.fused = c.fused;
    train.precision = precision_from_string(c.dtype == DType::f32 ? "fp32" : "bf16");
    const Outcome plain = run_once(c.model, train);
    for (const char* mask :
         {"selective", "block", "attention", "norm1,qkv", "norm2,gate_up,activation", "o_proj,norm2"}) {
      train.memory.recompute = recompute_from_string(mask);
      const Outcome outcome = run_once(c.model, train);
      EXPECT_EQ(outcome.gradients, plain.gradients) << c.name << " " << mask;
      EXPECT_GT(outcome.stage_runs, plain.stage_runs) << c.name << " " << mask;
    }
  }
}

TEST(Recompute, OneTileIsTheWholeMlp) {
  ModelConfig gemma = small_model();
  gemma.activation = Activation::gelu_tanh;
  const FusedOps unfused{.swiglu = false};
  for (const ModelConfig& model : {small_model(), gemma}) {
    for (const FusedOps& fused : {FusedOps{}, unfused}) {
      TrainConfig train = small_run();
      train.fused = fused;
      const Outcome whole = run_once(model, train);
      train.memory.mlp_tile = train.tokens();
      EXPECT_EQ(run_once(model, train).gradients, whole.gradients);
    }
  }
}

TEST(Recompute, SavesMemoryInOrder) {
  ModelConfig model = small_model();
  model.layers = 8;
  TrainConfig train = small_run();
  train.batch = 8;
  train.seq = 32;
  const ParameterList parameters(model);
  const auto planned = [&](const char* mask) {
    train.memory.recompute = recompute_from_string(mask);
    return plan_memory(model, parameters, train).total_bytes();
  };
  const int64_t none = planned("none"), selective = planned("selective"), block = planned("block");
  EXPECT_LT(selective, none);
  EXPECT_LT(block, selective);
  train.memory.mlp_tile = 32;
  EXPECT_LT(planned("block"), block);
}

TEST(Recompute, NamesGoBothWays) {
  for (const char* text : {"none", "selective", "block", "norm1,gate_up"}) {
    EXPECT_EQ(recompute_to_string(recompute_from_string(text)), text);
  }
  EXPECT_THROW((void)recompute_from_string("norm3"), Error);
  EXPECT_THROW((void)recompute_from_string(""), Error);
}

}  // namespace
}  // namespace tigon::test
