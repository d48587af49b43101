#include "tigon/generate/evaluator.hpp"

#include "generate/frozen_model.hpp"
#include "tigon/core/error.hpp"
#include "train/check_range.hpp"
#include "train/step.hpp"

namespace tigon {

namespace {

TrainConfig config_of(const ModelConfig& model, const FrozenOptions& options, int64_t batch, int64_t seq) {
  check_range("batch", static_cast<double>(batch), 1, 1 << 20);
  TrainConfig train = frozen_config(options);
  train.batch = batch;
  train.seq = seq;
  train.base = BaseFormat::full;  // the other is trained beside adapters alone, and read without
  check_train_config(train, model);
  train.base = options.base;
  return train;
}

}  // namespace

struct Evaluator::Impl {
  Impl(const ModelConfig& model, const TrainConfig& train)
      : frozen(model, train, [](const Context&) { return std::vector<OwnedTensor>(); }),
        step(frozen.model(), frozen.parameters(), frozen.train()) {}

  // Rows [first, first + batch) of a file. What a short row lacks does not count.
  TokenBatch rows(const TokenFile& file, int64_t first) const;
  double loss(const TokenBatch& batch);

  FrozenModel frozen;
  Step step;
};

Evaluator::Evaluator(const ModelConfig& model, const FrozenOptions& options, int64_t batch, int64_t seq)
    : impl_(std::make_unique<Impl>(model, config_of(model, options, batch, seq))) {}
Evaluator::~Evaluator() = default;

void Evaluator::load_weights(const std::filesystem::path& folder) { impl_->frozen.load_weights(folder); }
void Evaluator::load_adapters(const std::filesystem::path& folder) { impl_->frozen.load_adapters(folder); }
FrozenBytes Evaluator::bytes() const noexcept { return impl_->frozen.bytes(); }

TokenBatch Evaluator::Impl::rows(const TokenFile& file, int64_t first) const {
  const TrainConfig& train = frozen.train();
  TokenBatch batch;
  std::vector<int32_t> row;
  for (int64_t r = first; r < first + train.batch; ++r) {
    const int64_t begin = r * train.seq, there = std::clamp<int64_t>(file.tokens() - begin, 0, train.seq + 1);
    row.resize(static_cast<size_t>(there));
    std::vector<bool> learnt;
    if (there > 0) {
      file.read(begin, there, row.data());
      learnt = file.read_mask(begin, there);
    }
    for (int64_t i = 0; i < train.seq; ++i) {
      const bool counts = i + 1 < there && learnt[static_cast<size_t>(i + 1)];
      batch.ids.push_back(i + 1 < there ? row[static_cast<size_t>(i)] : 0);
      batch.labels.push_back(counts ? row[static_cast<size_t>(i + 1)] : static_cast<int32_t>(train.ignore_index));
      batch.counted += counts ? 1 : 0;
    }
  }
  return batch;
}

double Evaluator::Impl::loss(const TokenBatch& batch) {
  const StepBuffers& b = frozen.residents().buffers[0];
  copy_to(frozen.transfers(), b.micro_ids(0), batch.ids.data());
  copy_to(frozen.transfers(), b.micro_labels(0), batch.labels.data());
  frozen.run([&](const Context& ctx) { step.evaluate(ctx, frozen.weights(), nullptr, b); }, true);
  float sum = 0;
  copy_from(frozen.transfers(), &sum, b.loss(0));
  return static_cast<double>(sum);
}

Evaluator::Result Evaluator::evaluate(const TokenFile& file, const std::function<bool(const Result&)>& progress) {
  const TrainConfig& train = impl_->frozen.train();
  if (file.vocab() > impl_->frozen.model().vocab || file.tokens() < 2) {
    const bool few = file.tokens() < 2;
    throw Error(ErrorCode::invalid_argument,
                {.where = "evaluation",
                 .what = few ? "there are too few tokens" : "the text's vocabulary is larger than the model's",
                 .expected = few ? "2 at least" : "at most " + std::to_string(impl_->frozen.model().vocab),
                 .got = std::to_string(few ? file.tokens() : file.vocab())});
  }
  Result result;
  for (int64_t row = 0; row * train.seq + 1 < file.tokens(); row += train.batch) {
    const TokenBatch batch = impl_->rows(file, row);
    result.loss += impl_->loss(batch);
    result.tokens += batch.counted;
    result.read = std::min((row + train.batch) * train.seq, file.tokens() - 1);
    if (progress && !progress(result)) break;
  }
  return result;
}

}  // namespace tigon
