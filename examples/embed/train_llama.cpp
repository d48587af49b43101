// From C++: a small Llama of your own, planned, then trained on batches of your own.
#include <cstdio>
#include <tigon/core/error.hpp>
#include <tigon/train/planner.hpp>
#include <tigon/train/trainer.hpp>

using namespace tigon;

namespace {

// Counting up from a token of its own: what a model learns at once.
TokenBatch batch_of(const TrainConfig& train, int64_t vocab, int64_t step) {
  TokenBatch batch;
  for (int64_t i = 0; i < train.tokens(); ++i) {
    batch.ids.push_back(static_cast<int32_t>((step + i) % vocab));
    batch.labels.push_back(static_cast<int32_t>((step + i + 1) % vocab));
  }
  batch.counted = train.tokens();  // labels that are not the ignore index
  return batch;
}

}  // namespace

int main() try {
  const ModelConfig model{.vocab = 64,
                          .hidden = 32,
                          .intermediate = 64,
                          .layers = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .max_position = 64};
  TrainConfig train;
  train.batch = 4;
  train.seq = 16;
  train.steps = 40;
  train.optimizer.lr = 1e-2;
  const MemoryPlan plan = plan_memory(model, ParameterList(model), train);
  std::printf("%lld bytes planned\n", static_cast<long long>(plan.total_bytes()));

  Trainer trainer(model, train);
  trainer.initialize();  // or load_weights(a Hugging Face folder), or restore_checkpoint
  double first = 0, last = 0;
  for (int64_t step = 0; step < train.steps; ++step) {
    trainer.submit({batch_of(train, model.vocab, step)});
    last = trainer.collect().loss;
    if (step == 0) first = last;
  }
  std::printf("loss %.3f at first, %.3f at last, %lld bytes used\n", first, last,
              static_cast<long long>(trainer.used_bytes()));
  return last < first / 2 && trainer.used_bytes() == plan.total_bytes() ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
