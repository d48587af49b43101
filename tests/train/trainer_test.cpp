#include "tigon/train/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/safetensors.hpp"
#include "tigon/train/checkpoints.hpp"
#include "train/small_model.hpp"

namespace tigon::test {
namespace {

const std::map<std::string, std::string> kSettings = {{"seed", "1"}};

StepReport one_step(Trainer& trainer, int64_t step) {
  trainer.submit(small_batch(trainer.model(), trainer.config(), step));
  return trainer.collect();
}

// The whole state of a run as bytes.
std::string state_of(const Trainer& trainer) {
  const TemporaryFolder folder;
  trainer.save_checkpoint(folder / "state", kSettings);
  return read_text_file(folder / "state" / "model.safetensors", 1 << 26) +
         read_text_file(folder / "state" / "state.safetensors", 1 << 26);
}

TEST(Trainer, LearnsABatchByHeart) {
  for (const std::string& precision : precision_names()) {
    TrainConfig train = small_run();
    train.precision = precision_from_string(precision);
    train.optimizer.lr = 2e-2;
    train.schedule.decay = Decay::constant;
    Trainer trainer(small_model(), train);
    trainer.initialize();
    const double first = one_step(trainer, 0).loss;
    EXPECT_NEAR(first, std::log(61.0), 0.5) << precision;
    double last = first;
    for (int i = 0; i < 60; ++i) last = one_step(trainer, 0).loss;
    EXPECT_LT(last, first / 4) << precision;
  }
}

TEST(Trainer, SameSeedSameBitsForEveryThreadCount) {
  for (const char* precision : {"fp32", "bf16-sr"}) {
    std::string first;
    for (const int threads : {1, 2, 3}) {
      TrainConfig train = small_run();
      train.threads = threads;
      train.precision = precision_from_string(precision);
      Trainer trainer(small_model(), train);
      trainer.initialize();
      for (int64_t step = 0; step < 4; ++step) (void)one_step(trainer, step);
      const std::string state = state_of(trainer);
      if (first.empty()) first = state;
      EXPECT_EQ(state, first) << precision << " " << threads;
    }
    TrainConfig other = small_run();
    other.precision = precision_from_string(precision);
    other.seed = 2;
    Trainer trainer(small_model(), other);
    trainer.initialize();
    for (int64_t step = 0; step < 4; ++step) (void)one_step(trainer, step);
    EXPECT_NE(state_of(trainer), first);
  }
}

TEST(Trainer, ResumedIsTheRunThatNeverStopped) {
  for (const std::string& precision : precision_names()) {
    for (const int64_t accumulate : {1, 2}) {
      TrainConfig train = small_run();
      train.precision = precision_from_string(precision);
      train.precision.loss_scale.window = 3;  // so that the scale moves
      train.accumulate = accumulate;
      const TemporaryFolder folder;
      Trainer whole(small_model(), train);
      whole.initialize();
      for (int64_t step = 0; step < 4; ++step) (void)one_step(whole, step);
      whole.save_checkpoint(folder / "half", kSettings);
      StepReport expected;
      for (int64_t step = 4; step < 9; ++step) expected = one_step(whole, step);

      Trainer second(small_model(), train);
      second.initialize();
      (void)one_step(second, 3);  // something to overwrite
      second.restore_checkpoint(folder / "half", kSettings);
      EXPECT_EQ(second.step(), 4);
      StepReport got;
      for (int64_t step = 4; step < 9; ++step) got = one_step(second, step);
      EXPECT_EQ(got.loss, expected.loss) << precision;
      EXPECT_EQ(got.lr, expected.lr);
      EXPECT_EQ(got.loss_scale, expected.loss_scale);
      EXPECT_EQ(state_of(second), state_of(whole)) << precision << " " << accumulate;
    }
  }
}

// Unequal numbers of counted tokens: the mean is over all of them, not of the micro-batches' means.
TEST(Trainer, MicroBatchesAddUpToTheLargeBatch) {
  TrainConfig large = small_run(), small = small_run();
  large.batch = 6;
  small.batch = 2;
  small.accumulate = 3;
  std::vector<TokenBatch> micros = small_batch(small_model(), small, 0);
  for (size_t i = 0; i < 15; ++i) {
    if (micros[1].labels[i] >= 0) --micros[1].counted;
    micros[1].labels[i] = -100;
  }
  TokenBatch all;
  for (const TokenBatch& micro : micros) {
    all.ids.insert(all.ids.end(), micro.ids.begin(), micro.ids.end());
    all.labels.insert(all.labels.end(), micro.labels.begin(), micro.labels.end());
    all.counted += micro.counted;
  }
  const TemporaryFolder folder;
  const auto run = [&](const TrainConfig& train, const std::vector<TokenBatch>& batch, const char* file) {
    Trainer trainer(small_model(), train);
    trainer.initialize();
    trainer.save_next_gradients(folder / file);
    trainer.submit(batch);
    return trainer.collect();
  };
  const StepReport once = run(large, {all}, "large"), parts = run(small, micros, "small");
  EXPECT_NEAR(once.loss, parts.loss, 1e-6 * once.loss);
  EXPECT_NEAR(once.grad_norm, parts.grad_norm, 1e-5 * once.grad_norm);
  const TensorFiles a = TensorFiles::open(folder / "large"), b = TensorFiles::open(folder / "small");
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, tensor] : a.tensors()) {
    std::vector<float> x(static_cast<size_t>(tensor.bytes / 4)), y(x.size());
    a.read(tensor, 0, x.data(), tensor.bytes);
    b.read(*b.find(name), 0, y.data(), tensor.bytes);
    double difference = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      difference += std::pow(x[i] - y[i], 2);
      size += std::pow(x[i], 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(size)) << name;
  }
}

// One layer's gradients at a time: less memory, the same bits.
TEST(Trainer, EarlyUpdatesAreTheSameUpdates) {
  for (const ModelConfig& model : {small_model(), small_qwen3()}) {
    for (const char* precision : {"fp32", "bf16", "bf16-sr"}) {
      TrainConfig train = small_run();
      train.precision = precision_from_string(precision);
      train.clip = 0;
      Trainer late(model, train);
      train.memory.update_early = true;
      Trainer early(model, train);
      late.initialize();
      early.initialize();
      for (int64_t step = 0; step < 4; ++step) {
        const StepReport a = one_step(late, step), b = one_step(early, step);
        EXPECT_EQ(a.loss, b.loss);
        EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * a.grad_norm);
      }
      EXPECT_TRUE(state_of(early) == state_of(late)) << precision;
      EXPECT_LT(early.plan().total_bytes(), late.plan().total_bytes());
      EXPECT_EQ(early.used_bytes(), early.plan().total_bytes());
    }
  }
  TrainConfig train = small_run();
  train.memory.update_early = true;
  EXPECT_THROW(Trainer(small_model(), train), Error) << "clipping needs the whole gradient";
  train.clip = 0;
  train.accumulate = 2;
  EXPECT_THROW(Trainer(small_model(), train), Error);
  train.accumulate = 1;
  EXPECT_THROW(Trainer(small_model(), train).save_next_gradients("x"), Error);
}

TEST(Trainer, OverflowedStepsAreSkippedAndCounted) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("fp16");
  train.precision.loss_scale = {.dynamic = true, .initial = 0x1p40, .window = 4, .hysteresis = 2};
  Trainer trainer(small_model(), train);
  trainer.initialize();
  const std::string before = state_of(trainer);
  StepReport report = one_step(trainer, 0);
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(state_of(trainer), before) << "a skipped step changes nothing";
  report = one_step(trainer, 1);
  EXPECT_EQ(report.loss_scale, 0x1p40) << "hysteresis: two overflows before it halves";
  report = one_step(trainer, 2);
  EXPECT_EQ(report.loss_scale, 0x1p39);
  int64_t steps = 3;
  while (report.skipped) {
    report = one_step(trainer, steps++);
    ASSERT_LT(steps, 100);
  }
  EXPECT_EQ(trainer.skipped(), steps - 1);
  EXPECT_NE(state_of(trainer), before);
}

TEST(LossScale, HalvesAndDoubles) {
  LossScale scale({.dynamic = true, .initial = 64, .window = 3, .hysteresis = 2});
  EXPECT_FALSE(scale.update(false));
  EXPECT_EQ(scale.scale(), 64);
  EXPECT_FALSE(scale.update(false));
  EXPECT_EQ(scale.scale(), 32);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 64);
  EXPECT_EQ(scale.skipped(), 2);
  LossScale other({.dynamic = true, .initial = 1, .window = 3, .hysteresis = 2});
  other.restore(scale.state());
  EXPECT_EQ(other.scale(), 64);
  LossScale fixed({});
  EXPECT_FALSE(fixed.update(false));
  EXPECT_EQ(fixed.scale(), 1);
}

TEST(Trainer, EvaluationIsTheTrainingLossWithoutChange) {
  TrainConfig train = small_run();
  train.evaluates = true;
  for (const char* fused : {"all", "none"}) {
    train.fused = fused_from_string(fused);
    Trainer trainer(small_model(), train);
    trainer.initialize();
    const std::string before = state_of(trainer);
    const auto batch = small_batch(small_model(), train, 0);
    const double loss = trainer.evaluate(batch[0]) / static_cast<double>(batch[0].counted);
    EXPECT_EQ(state_of(trainer), before);
    EXPECT_EQ(loss, one_step(trainer, 0).loss);
  }
}

// Two documents in a row, and the same two in rows of their own, filled up with what does not count.
TEST(Trainer, DocumentsApartAreThoseOfRowsOfTheirOwn) {
  for (const ModelConfig& model : {small_model(), small_qwen3()}) {
    TrainConfig packed = small_run(), padded = small_run();
    packed.batch = 1;
    packed.documents_apart = true;
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5}, labels = {1, 4, 1, -100, 9, 2, 6, 5, 3};
    const TokenBatch row{.ids = ids, .labels = labels, .counted = 8, .starts = {0, 0, 0, 0, 4, 4, 4, 4, 4}};
    TokenBatch rows{.ids = std::vector<int32_t>(18, 7), .labels = std::vector<int32_t>(18, -100), .counted = 8};
    for (size_t i = 0; i < 9; ++i) {
      const size_t to = i < 4 ? i : 9 + i - 4;
      rows.ids[to] = ids[i];
      rows.labels[to] = labels[i];
    }
    const auto step = [&](const TrainConfig& train, const TokenBatch& batch) {
      Trainer trainer(model, train);
      trainer.initialize();
      trainer.submit({batch});
      return trainer.collect();
    };
    const StepReport together = step(packed, row), alone = step(padded, rows);
    EXPECT_NEAR(together.loss, alone.loss, 1e-6);
    EXPECT_NEAR(together.grad_norm, alone.grad_norm, 1e-5);
    // As one document it is another row.
    packed.documents_apart = false;
    const StepReport seen = step(packed, {.ids = ids, .labels = labels, .counted = 8});
    EXPECT_GT(std::abs(seen.loss - alone.loss), 1e-4);
  }
}

TEST(Trainer, StartsOfDocumentsAreChecked) {
  TrainConfig train = small_run();
  train.documents_apart = true;
  Trainer trainer(small_model(), train);
  trainer.initialize();
  const auto refuse = [&](auto change, const char* text) {
    auto batch = small_batch(small_model(), train, 0);
    change(batch[0].starts);
    expect_error([&] { trainer.submit(batch); }, ErrorCode::invalid_argument, text);
  };
  refuse([](auto& starts) { starts.clear(); }, "the starts of documents do not fit; expected 18");
  refuse([](auto& starts) { starts[9] = 8; }, "position 9 makes no sense; expected 0 to 0, got 8");
  refuse([](auto& starts) { starts[3] = 4; }, "position 3 makes no sense");
  refuse([](auto& starts) { starts[7] = 0; }, "position 7 makes no sense; expected 4 to 7, got 0");
  train.documents_apart = false;
  Trainer without(small_model(), train);
  without.initialize();
  auto batch = small_batch(small_model(), train, 0);
  batch[0].starts.assign(18, 0);
  expect_error([&] { without.submit(batch); }, ErrorCode::invalid_argument, "documents_apart is not set");
}

TEST(Trainer, SpeakingChangesNothing) {
  TrainConfig train = small_run();
  train.speaks = 5;
  Trainer trainer(small_model(), train), other(small_model(), small_run());
  trainer.initialize();
  other.initialize();
  const std::vector<int32_t> text = {3, 1, 4, 1, 5};
  for (int64_t step = 0; step < 2; ++step) {
    const std::vector<float> first = trainer.next_token(text);
    EXPECT_EQ(trainer.next_token(text), first);
    EXPECT_NE(trainer.next_token(std::span(text).first(4)), first);
    EXPECT_EQ(one_step(trainer, step).loss, one_step(other, step).loss);
    EXPECT_EQ(state_of(trainer), state_of(other));
  }
  EXPECT_EQ(trainer.used_bytes(), trainer.plan().total_bytes());
  const auto refuse = [](Trainer& whom, std::vector<int32_t> tokens, const char* said) {
    expect_error([&] { (void)whom.next_token(tokens); }, ErrorCode::invalid_argument, said);
  };
  refuse(trainer, {}, "too long, or empty; expected 1 to 5 tokens");
  refuse(trainer, {1, 2, 3, 4, 5, 6}, "got 6");
  refuse(trainer, {61}, "not in the model's vocabulary; expected 0 to 60");
  refuse(trainer, {-1}, "not in the model's vocabulary");
  refuse(other, {1}, "expected 1 to 0 tokens");
  train.speaks = 65;
  EXPECT_THROW(Trainer(small_model(), train), Error);
}

TEST(Trainer, ABatchWithoutLabelsChangesNothingButTheDecay) {
  TrainConfig train = small_run();
  train.optimizer.weight_decay = 0;
  Trainer trainer(small_model(), train);
  trainer.initialize();
  const std::string before = state_of(trainer);
  auto batch = small_batch(small_model(), train, 0);
  std::fill(batch[0].labels.begin(), batch[0].labels.end(), -100);
  batch[0].counted = 0;
  trainer.submit(batch);
  const StepReport report = trainer.collect();
  EXPECT_EQ(report.loss, 0);
  EXPECT_EQ(report.grad_norm, 0);
  EXPECT_EQ(state_of(trainer), before);
}

TEST(Trainer, WrongUseIsAnError) {
  TrainConfig train = small_run();
  Trainer trainer(small_model(), train);
  trainer.initialize();
  EXPECT_THROW((void)trainer.collect(), Error);
  EXPECT_THROW((void)trainer.evaluate(small_batch(small_model(), train, 0)[0]), Error);
  expect_error([&] { trainer.submit({}); }, ErrorCode::invalid_argument, "expected 1, got 0");
  trainer.submit(small_batch(small_model(), train, 0));
  const TemporaryFolder folder;
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { trainer.initialize(); }, [&] { trainer.load_weights(folder / "none"); },
                                          [&] { trainer.save_weights(folder / "weights"); },
                                          [&] { trainer.save_checkpoint(folder / "state", kSettings); },
                                          [&] { trainer.restore_checkpoint(folder / "state", kSettings); }}) {
    expect_error(call, ErrorCode::invalid_argument, "a step is under way");
  }
  expect_error([&] { trainer.submit(small_batch(small_model(), train, 1)); }, ErrorCode::invalid_argument,
               "Collect one first");
}

// Whatever is wrong with a batch is found before the step begins, and the next batch finds the run as it was.
TEST(Trainer, ABadBatchChangesNothing) {
  TrainConfig train = small_run();
  train.evaluates = true;
  Trainer trainer(small_model(), train), other(small_model(), train);
  trainer.initialize();
  other.initialize();
  const auto refuse = [&](auto change, const char* text) {
    auto batch = small_batch(small_model(), train, 0);
    change(batch[0]);
    expect_error([&] { trainer.submit(batch); }, ErrorCode::invalid_argument, text);
    expect_error([&] { (void)trainer.evaluate(batch[0]); }, ErrorCode::invalid_argument, text);
  };
  refuse([](TokenBatch& b) { b = {}; }, "wrong size; expected 18 ids and labels");
  refuse([](TokenBatch& b) { b.ids.pop_back(); }, "wrong size");
  refuse([](TokenBatch& b) { b.labels.push_back(0); }, "wrong size");
  refuse([](TokenBatch& b) { b.ids[3] = 61; }, "the id at position 3 is out of range; expected 0 to 60, got 61");
  refuse([](TokenBatch& b) { b.ids[3] = -100; }, "the id at position 3");
  refuse([](TokenBatch& b) { b.labels[1] = 61; }, "the label at position 1");
  refuse([](TokenBatch& b) { b.counted = 0; }, "'counted' is not the number");
  refuse([](TokenBatch& b) { ++b.counted; }, "'counted' is not the number");
  EXPECT_EQ(trainer.step(), 0);
  EXPECT_EQ(one_step(trainer, 0).loss, one_step(other, 0).loss);
  EXPECT_EQ(state_of(trainer), state_of(other));
}

// transformers keeps such a head apart from the embedding.
TEST(Trainer, AHeadThatIsNotTheEmbeddingItIsTiedToIsRefused) {
  const TemporaryFolder folder;
  const ModelConfig model = small_qwen3();
  Trainer trainer(model, small_run());
  trainer.initialize();
  trainer.save_weights(folder / "model");
  const auto with_head = [&](std::vector<int64_t> sizes, int difference) {
    const TensorFiles files = TensorFiles::open(folder / "model");
    std::vector<TensorToStore> tensors;
    const auto add = [&](const std::string& name, const StoredTensor& from, std::vector<int64_t> shape, int change) {
      tensors.push_back({.name = name,
                         .dtype = from.dtype,
                         .sizes = std::move(shape),
                         .produce = [&files, &from, change](int64_t offset, void* out, int64_t bytes) {
                           files.read(from, offset, out, bytes);
                           auto* last = static_cast<unsigned char*>(out) + bytes - 1;
                           *last = static_cast<unsigned char>(*last + change);
                         }});
    };
    for (const auto& [name, tensor] : files.tensors()) add(name, tensor, tensor.sizes, 0);
    add("lm_head.weight", *files.find("model.embed_tokens.weight"), std::move(sizes), difference);
    (void)write_safetensors(folder / "with_head.safetensors", tensors);
  };
  with_head({model.vocab, model.hidden}, 0);
  EXPECT_NO_THROW(trainer.load_weights(folder / "with_head.safetensors"));
  with_head({model.vocab, model.hidden}, 1);
  expect_error([&] { trainer.load_weights(folder / "with_head.safetensors"); }, ErrorCode::invalid_argument,
               "'lm_head.weight' is not the embedding");
  with_head({model.hidden, model.vocab}, 0);
  expect_error([&] { trainer.load_weights(folder / "with_head.safetensors"); }, ErrorCode::invalid_argument,
               "'lm_head.weight' is not the embedding");
}

TEST(Trainer, WithoutWeightsNothingRuns) {
  TrainConfig train = small_run();
  train.evaluates = true;
  Trainer trainer(small_model(), train);
  const TemporaryFolder folder;
  const auto batch = small_batch(small_model(), train, 0);
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { trainer.submit(batch); }, [&] { (void)trainer.evaluate(batch[0]); },
                                          [&] { trainer.save_weights(folder / "weights"); },
                                          [&] { trainer.save_checkpoint(folder / "state", kSettings); }}) {
    expect_error(call, ErrorCode::invalid_argument, "there are no whole weights");
  }
}

// A step that failed in its middle has moved some things and not others: no checkpoint may be made of that.
TEST(Trainer, AStepThatFailedIsTheLast) {
  Trainer trainer(small_model(), small_run());
  trainer.initialize();
  const TemporaryFolder folder;
  trainer.save_next_gradients(folder / "no folder" / "gradients");
  EXPECT_THROW((void)one_step(trainer, 0), Error);
  expect_error([&] { (void)one_step(trainer, 1); }, ErrorCode::invalid_argument, "half-way");
  expect_error([&] { trainer.save_checkpoint(folder / "state", kSettings); }, ErrorCode::invalid_argument, "half-way");
}

// Weights that are given to a trainer that has trained are those of a new run.
TEST(Trainer, NewWeightsBeginANewRun) {
  TrainConfig train = small_run();
  train.precision = precision_from_string("fp16");
  train.precision.loss_scale = {.dynamic = true, .initial = 0x1p40, .window = 2, .hysteresis = 1};
  const TemporaryFolder folder;
  Trainer used(small_model(), train);
  used.initialize();
  used.save_weights(folder / "model");
  for (const auto& begin : std::vector<std::function<void(Trainer&)>>{
           [](Trainer& t) { t.initialize(); }, [&](Trainer& t) { t.load_weights(folder / "model"); }}) {
    Trainer fresh(small_model(), train);
    begin(fresh);
    for (int64_t step = 0; step < 40; ++step) (void)one_step(used, step);
    begin(used);
    EXPECT_EQ(used.step(), 0);
    EXPECT_EQ(used.skipped(), 0);
    for (int64_t step = 0; step < 35; ++step) {
      const StepReport a = one_step(fresh, step), b = one_step(used, step);
      ASSERT_EQ(a.loss, b.loss) << step;
      ASSERT_EQ(a.lr, b.lr);
      ASSERT_EQ(a.loss_scale, b.loss_scale);
    }
    EXPECT_GT(fresh.step(), fresh.skipped()) << "some steps must have changed the weights";
    EXPECT_EQ(state_of(used), state_of(fresh));
  }
}

// Loss and norm of the step that spoils the weights are finite: only the weights themselves tell.
TEST(Trainer, WhatIsNotFiniteIsNotSaved) {
  for (const std::string& precision : precision_names()) {
    TrainConfig train = small_run();
    train.precision = precision_from_string(precision);
    train.optimizer.eps = 0;  // tokens that the batch does not have get no gradient, and 0/0
    Trainer trainer(small_model(), train);
    trainer.initialize();
    const TemporaryFolder folder;
    trainer.save_checkpoint(folder / "state", kSettings);
    const StepReport report = one_step(trainer, 0);
    EXPECT_TRUE(report.finite && !report.skipped) << precision;
    for (const auto& call :
         std::vector<std::function<void()>>{[&] { trainer.save_weights(folder / "weights"); },
                                            [&] { trainer.save_checkpoint(folder / "state", kSettings); }}) {
      expect_error(call, ErrorCode::invalid_argument, "'model.embed_tokens.weight': a value is not finite");
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder / "weights"));
    trainer.restore_checkpoint(folder / "state", kSettings);
    EXPECT_EQ(trainer.step(), 0) << "the checkpoint from before stays";
  }
}

TEST(Schedule, RisesAndFalls) {
  const Schedule cosine{.decay = Decay::cosine, .warmup = 10, .floor = 0.1};
  EXPECT_DOUBLE_EQ(schedule_factor(cosine, 1, 110), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(cosine, 10, 110), 1.0);
  EXPECT_NEAR(schedule_factor(cosine, 60, 110), 0.55, 1e-12);
  EXPECT_NEAR(schedule_factor(cosine, 110, 110), 0.1, 1e-12);
  EXPECT_NEAR(schedule_factor(cosine, 500, 110), 0.1, 1e-12);
  const Schedule linear{.decay = Decay::linear, .floor = 0.0};
  EXPECT_NEAR(schedule_factor(linear, 25, 100), 0.75, 1e-12);
  EXPECT_DOUBLE_EQ(schedule_factor({.decay = Decay::constant}, 99, 100), 1.0);
}

}  // namespace
}  // namespace tigon::test
