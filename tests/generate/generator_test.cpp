#include "tigon/generate/generator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tigon/core/error.hpp"
#include "tigon/generate/evaluator.hpp"
#include "train/small_model.hpp"

namespace tigon {
namespace {

using test::small_model;
using test::TemporaryFolder;

ModelConfig small_gemma() {
  ModelConfig model = small_model();
  model.family = Family::gemma;
  model.activation = Activation::gelu_tanh;
  model.kv_heads = 1;
  model.tied_embeddings = true;
  model.norm_offset = 1.0;
  model.norm_casting = ops::NormCasting::gemma;
  model.embedding_scale = std::sqrt(24.0);
  return model;
}

ModelConfig small_qwen2() {
  ModelConfig model = small_model();
  model.family = Family::qwen2;
  model.qkv_bias = true;
  return model;
}

std::vector<int32_t> tokens(int64_t count, int64_t vocab, int salt = 0) {
  std::vector<int32_t> list;
  for (int64_t i = 0; i < count; ++i)
    list.push_back(static_cast<int32_t>((i * i * 7 + i * 3 + 11 + salt * 29) % vocab));
  return list;
}

// −ln of a token's probability.
double loss_of(std::span<const float> logits, int32_t token) {
  double most = -1e30, sum = 0;
  for (const float x : logits) most = std::max(most, static_cast<double>(x));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  return most + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

std::span<const float> row(std::span<const float> logits, int64_t sequence, int64_t vocab) {
  return logits.subspan(static_cast<size_t>(sequence * vocab), static_cast<size_t>(vocab));
}

struct Case {
  const char* name;
  ModelConfig model;
  const char* precision;
  double tolerance;  // of a token's loss
};

class GeneratorCase : public testing::TestWithParam<Case> {
 protected:
  // A model with random weights, in a folder.
  void SetUp() override {
    TrainConfig train = test::small_run();
    train.precision = precision_from_string(GetParam().precision);
    train.batch = 1;
    train.seq = kTokens - 1;
    train.evaluates = true;
    train.speaks = kTokens;
    trainer_ = std::make_unique<Trainer>(GetParam().model, train);
    trainer_->initialize();
    trainer_->save_weights(folder_ / "model");
  }
  FrozenOptions options() const { return {.threads = 1, .precision = precision_from_string(GetParam().precision)}; }

  static constexpr int64_t kTokens = 20;
  TemporaryFolder folder_;
  std::unique_ptr<Trainer> trainer_;
};

// However a text is cut into a prompt and what is added to it, its loss is that of training.
TEST_P(GeneratorCase, ForetellsAsTrainingDoes) {
  const ModelConfig& model = GetParam().model;
  const std::vector<int32_t> text = tokens(kTokens, model.vocab);
  TokenBatch batch{
      .ids = {text.begin(), text.end() - 1}, .labels = {text.begin() + 1, text.end()}, .counted = kTokens - 1};
  const double expected = trainer_->evaluate(batch);
  Generator generator(model, options(), 1, kTokens);
  generator.load_weights(folder_ / "model");
  // The losses of the first tokens, one by one from the first.
  std::vector<double> losses;
  auto logits = generator.read({{text[0]}});
  for (size_t i = 1; i < text.size(); ++i) {
    losses.push_back(loss_of(logits, text[i]));
    if (i + 1 < text.size()) logits = generator.add(std::array{text[i]});
  }
  EXPECT_NEAR(std::accumulate(losses.begin(), losses.end(), 0.0), expected, GetParam().tolerance * kTokens);
  for (const size_t prompt : {2, 7, 19}) {
    logits = generator.read({{text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt)}});
    for (size_t i = prompt; i < text.size(); ++i) {
      EXPECT_NEAR(loss_of(logits, text[i]), losses[i - 1], GetParam().tolerance)
          << "token " << i << " of a prompt of " << prompt;
      if (i + 1 < text.size()) logits = generator.add(std::array{text[i]});
    }
  }
}

// And what would follow is what the trainer says itself, which reads the whole text each time.
TEST_P(GeneratorCase, GoesOnAsTheTrainerDoes) {
  const std::vector<int32_t> text = tokens(kTokens, GetParam().model.vocab);
  Generator generator(GetParam().model, options(), 1, kTokens);
  generator.load_weights(folder_ / "model");
  auto logits = generator.read({{text[0]}});
  for (size_t i = 1;; ++i) {
    const std::vector<float> expected = trainer_->next_token(std::span(text).first(i));
    for (size_t t = 0; t < expected.size(); ++t) ASSERT_NEAR(logits[t], expected[t], GetParam().tolerance) << i;
    if (i == text.size()) break;
    logits = generator.add(std::array{text[i]});
  }
}

// Prompts of any lengths beside each other do not see each other.
TEST_P(GeneratorCase, SequencesOfABatchAreAlone) {
  const ModelConfig& model = GetParam().model;
  const std::vector<std::vector<int32_t>> prompts = {tokens(3, model.vocab), tokens(9, model.vocab, 1),
                                                     tokens(1, model.vocab, 2)};
  const std::vector<int32_t> next = {5, 17, 29};
  Generator together(model, options(), 3, 16), alone(model, options(), 1, 16);
  for (Generator* generator : {&together, &alone}) generator->load_weights(folder_ / "model");
  const auto near = [&](std::span<const float> a, std::span<const float> b) {
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], GetParam().tolerance) << i;
  };
  const auto first = together.read(prompts);
  const std::vector<float> after_prompts(first.begin(), first.end());
  const auto second = together.add(next);
  const std::vector<float> after_more(second.begin(), second.end());
  for (int64_t s = 0; s < 3; ++s) {
    near(row(after_prompts, s, model.vocab), alone.read({prompts[static_cast<size_t>(s)]}));
    near(row(after_more, s, model.vocab), alone.add(std::array{next[static_cast<size_t>(s)]}));
  }
}

// A text in rows, the last of them short.
TEST_P(GeneratorCase, EvaluatesEveryToken) {
  const ModelConfig& model = GetParam().model;
  const std::vector<int32_t> text = tokens(kTokens, model.vocab);
  write_token_file(folder_ / "text", text, model.vocab);
  const TokenFile file(folder_ / "text");
  Evaluator whole(model, options(), 1, kTokens - 1), rows(model, options(), 2, 6);
  for (Evaluator* evaluator : {&whole, &rows}) evaluator->load_weights(folder_ / "model");
  const TokenBatch batch{
      .ids = {text.begin(), text.end() - 1}, .labels = {text.begin() + 1, text.end()}, .counted = kTokens - 1};
  const Evaluator::Result one = whole.evaluate(file);
  EXPECT_EQ(one.tokens, kTokens - 1);
  EXPECT_EQ(one.loss, trainer_->evaluate(batch));
  // Rows of 6, 6, 6 and 1, each of which begins anew.
  Generator generator(model, options(), 1, kTokens);
  generator.load_weights(folder_ / "model");
  double expected = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const auto logits = i % 6 == 0 ? generator.read({{text[i]}}) : generator.add(std::array{text[i]});
    expected += loss_of(logits, text[i + 1]);
  }
  const Evaluator::Result cut = rows.evaluate(file);
  EXPECT_EQ(cut.tokens, kTokens - 1);
  EXPECT_NEAR(cut.loss, expected, GetParam().tolerance * kTokens);
  // The same with a mask: what it leaves out is seen and does not count.
  std::vector<bool> learnt(text.size(), true);
  for (size_t i = 0; i < 6; ++i) learnt[i] = false;
  {
    TokenFileWriter writer(folder_ / "masked", model.vocab);
    writer.add(text, learnt);
    writer.finish();
  }
  const Evaluator::Result masked = rows.evaluate(TokenFile(folder_ / "masked"));
  EXPECT_EQ(masked.tokens, kTokens - 6);
  EXPECT_EQ(masked.read, kTokens - 1);
  double left_out = 0;
  for (size_t i = 0; i < 5; ++i)
    left_out += loss_of(i == 0 ? generator.read({{text[i]}}) : generator.add(std::array{text[i]}), text[i + 1]);
  EXPECT_NEAR(masked.loss, expected - left_out, GetParam().tolerance * kTokens);
}

INSTANTIATE_TEST_SUITE_P(
    Families, GeneratorCase,
    testing::Values(Case{"llama", small_model(), "fp32", 2e-5}, Case{"qwen2", small_qwen2(), "fp32", 2e-5},
                    Case{"qwen3", test::small_qwen3(), "fp32", 2e-5}, Case{"gemma", small_gemma(), "fp32", 2e-5},
                    Case{"llama_bf16", small_model(), "bf16", 0.15}, Case{"llama_fp16", small_model(), "fp16", 0.02}),
    [](const auto& info) { return info.param.name; });

TEST(Generator, RefusesWhatDoesNotFit) {
  const ModelConfig model = small_model();
  EXPECT_THROW(Generator(model, {.threads = 1}, 0, 8), Error);
  EXPECT_THROW(Generator(model, {.threads = 1}, 1, 65), Error);  // of 64 positions
  Generator generator(model, {.threads = 1}, 1, 8);
  EXPECT_THROW((void)generator.read({{1, 2}}), Error);  // no weights
  TemporaryFolder folder;
  Trainer trainer(model, test::small_run());
  trainer.initialize();
  trainer.save_weights(folder / "model");
  generator.load_weights(folder / "model");
  EXPECT_THROW((void)generator.add(std::array{1}), Error);  // no prompt
  EXPECT_THROW((void)generator.read({{}}), Error);
  EXPECT_THROW((void)generator.read({{1}, {2}}), Error);
  EXPECT_THROW((void)generator.read({tokens(9, 61)}), Error);
  EXPECT_THROW((void)generator.read({{1, 61}}), Error);
  EXPECT_THROW((void)generator.read({{-1}}), Error);
  (void)generator.read({tokens(7, 61)});
  EXPECT_THROW((void)generator.add(std::array{61}), Error);
  (void)generator.add(std::array{3});
  EXPECT_THROW((void)generator.add(std::array{3}), Error);  // the context is full
  (void)generator.read({{1}});                              // and begins anew
}

// What it holds does not grow with the tokens.
TEST(Generator, TakesMemoryOnce) {
  const ModelConfig model = small_model();
  TemporaryFolder folder;
  Trainer trainer(model, test::small_run());
  trainer.initialize();
  trainer.save_weights(folder / "model");
  Generator generator(model, {.threads = 1}, 2, 32);
  generator.load_weights(folder / "model");
  EXPECT_EQ(generator.bytes().cache, 2 * 2 * align_up(2 * 2 * 32 * 8 * 4));  // layers, keys and values, batch, kv heads
  (void)generator.read({{1}, {2}});
  const int64_t before = generator.bytes().all();
  for (int i = 0; i < 31; ++i) (void)generator.add(std::array{i, i});
  EXPECT_LE(generator.bytes().all(), before + 4096);
}

}  // namespace
}  // namespace tigon
