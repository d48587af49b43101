// Which values stay and which stages run again: what the closure makes of a policy.
#include "tigon/model/block.hpp"

#include <gtest/gtest.h>

#include "tigon/core/error.hpp"

namespace tigon::test {
namespace {

BlockShape shape() {
  return {
      .config = {.vocab = 16, .hidden = 8, .intermediate = 12, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 4},
      .batch = 1,
      .seq = 3};
}

StageMask stages(std::initializer_list<StageId> list) {
  StageMask mask = 0;
  for (const StageId stage : list) mask |= stage_bit(stage);
  return mask;
}

constexpr StageMask kAll = (StageMask{1} << kStageCount) - 1;

TEST(Block, KeepsOnlyWhatBackwardReads) {
  const Block block(shape(), 0);
  EXPECT_EQ(block.rerun(), 0u);
  EXPECT_EQ(block.kept(), (SlotSet{Slot::x, Slot::normed1, Slot::rstd1, Slot::qkv, Slot::attn, Slot::lse, Slot::mid,
                                   Slot::normed2, Slot::rstd2, Slot::gate_up, Slot::act}))
      << "not attn_out and out, which nobody reads again";
}

TEST(Block, DroppingEverythingKeepsTheInput) {
  const Block block(shape(), kAll);
  EXPECT_EQ(block.kept(), SlotSet{Slot::x});
  EXPECT_EQ(block.rerun(), stages({StageId::norm1, StageId::qkv, StageId::attention, StageId::o_proj, StageId::norm2,
                                   StageId::gate_up}));
}

TEST(Block, AStageThatRunsAgainKeepsItsInputInstead) {
  const Block block(shape(), stages({StageId::norm2}));
  EXPECT_EQ(block.rerun(), stages({StageId::norm2}));
  EXPECT_TRUE(block.kept().contains(Slot::attn_out));
  EXPECT_FALSE(block.kept().contains(Slot::mid));
  // Without it, the projection runs again as well.
  EXPECT_EQ(Block(shape(), stages({StageId::norm2, StageId::o_proj})).rerun(),
            stages({StageId::norm2, StageId::o_proj}));
  // And where nothing reads it, dropping it costs nothing.
  EXPECT_EQ(Block(shape(), stages({StageId::o_proj, StageId::down, StageId::activation})).rerun(), 0u);
}

TEST(Block, VariantsAreOtherStages) {
  BlockShape normed = shape();
  normed.config.qk_norm = true;
  const Block qk_norm(normed, 0);
  EXPECT_TRUE(qk_norm.kept().contains(Slot::q_raw));
  EXPECT_FALSE(qk_norm.kept().contains(Slot::qkv));
  BlockShape tiled = shape();
  tiled.mlp_tile = 2;
  const Block mlp(tiled, 0);
  EXPECT_FALSE(mlp.kept().contains(Slot::gate_up));
  EXPECT_EQ(block_stages(tiled).size(), 6u);
  BlockShape eager = shape();
  eager.fused = {.rope = false, .swiglu = false, .rmsnorm = false, .flce = false};
  const Block unfused(eager, stages({StageId::activation}));
  EXPECT_EQ(unfused.rerun(), stages({StageId::activation})) << "its tape must be made again";
  eager.config.qk_norm = true;
  EXPECT_TRUE(Block(eager, 0).kept().contains(Slot::q_tape)) << "the norms of q and k are unfused as well";
  EXPECT_EQ(Block(eager, stages({StageId::qkv})).rerun(), stages({StageId::qkv}));
}

TEST(Block, StagesHaveNames) {
  for (int s = 0; s < kStageCount; ++s) {
    EXPECT_EQ(stage_from_string(to_string(static_cast<StageId>(s))), static_cast<StageId>(s));
  }
  EXPECT_THROW((void)stage_from_string("norm"), Error);
}

}  // namespace
}  // namespace tigon::test
