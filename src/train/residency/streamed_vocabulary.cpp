#include "train/residency/streamed_vocabulary.hpp"

#include <cstring>

#include "tigon/core/scope.hpp"
#include "tigon/ops/embedding.hpp"
#include "tigon/ops/global_norm.hpp"

namespace tigon {

namespace {

constexpr int64_t kNormElements = int64_t{1} << 21;  // at a time; whole pieces on every device
static_assert(kNormElements % ops::kNormPiece == 0 && kNormElements % ops::kNormPieceOnGpu == 0);

Tensor rows_of(const Tensor& t, int64_t rows) { return t.slice(0, 0, rows); }

}  // namespace

Tensor StreamedVocabulary::Window::take(const Context& ctx, const Tensor& home, ops::Classes now, ops::Classes next,
                                        Lane& up, const Moment& after, const char* name, MemoryClass memory_class) {
  const auto fetch = [&](ops::Classes part) {
    if (coming_.contains(part.begin)) return;
    const Tensor from = home.slice(0, part.begin, part.end);
    std::vector<OwnedTensor> slot;
    slot.emplace_back(ctx, name, home.dtype, std::span<const int64_t>(from.sizes, static_cast<size_t>(from.rank)),
                      memory_class);
    const Lane::Copy copy{.to = slot.back(), .from = from};
    Moment there = up.copy(ctx, {&copy, 1}, after);
    coming_.emplace(part.begin, InFlight(std::move(slot), std::move(there)));
  };
  if (now.begin != begin_) {
    current_.reset();
    fetch(now);
    const auto coming = coming_.find(now.begin);
    current_ = std::move(coming->second.join(ctx).front());
    coming_.erase(coming);
    begin_ = now.begin;
  }
  if (next.begin < next.end && next.begin != begin_) fetch(next);
  return current_;
}

Worker& StreamedVocabulary::worker() {
  if (!worker_) worker_.emplace();
  return *worker_;
}

Tensor StreamedVocabulary::passing(DType dtype, int64_t rows) const {
  return Tensor::contiguous(residents_.vocabulary_rows.view.data, dtype,
                            {rows, of(parameters_.embedding).weight.view.sizes[1]});
}

StreamedVocabulary::Rows StreamedVocabulary::bring(const Context& ctx, const StepBuffers& buffers, int64_t micro,
                                                   const Tensor& home, const Moment& after, bool filled,
                                                   const char* name, MemoryClass memory_class) {
  const int64_t tokens = train_.tokens(), vocab = home.sizes[0];
  Rows rows{.ids = {ctx, "row of each token", DType::i32, {tokens}, MemoryClass::other},
            .table = {ctx, name, home.dtype, {std::min(tokens, vocab), home.sizes[1]}, memory_class},
            .filled = filled};
  if (ctx.measuring()) return rows;
  std::vector<int32_t> used, places;
  rows_of_.assign(static_cast<size_t>(vocab), -1);
  for (const int32_t token : buffers.host_micro_ids(micro)) {
    int32_t& row = rows_of_[static_cast<size_t>(token)];
    if (row < 0) {
      row = static_cast<int32_t>(used.size());
      used.push_back(token);
    }
    places.push_back(row);
  }
  rows.tokens = std::make_shared<const std::vector<int32_t>>(std::move(used));
  const auto count = static_cast<int64_t>(rows.tokens->size());
  const Tensor through = passing(home.dtype, count), ids = residents_.vocabulary_ids;
  const Moment gathered = worker().add([=, this, free = passed_, wanted = rows.tokens, places = std::move(places)] {
    free.wait();
    after.wait();
    std::memcpy(ids.data, places.data(), places.size() * sizeof(int32_t));
    if (!filled) return;
    const Tensor list = Tensor::contiguous(const_cast<int32_t*>(wanted->data()), DType::i32, {count});
    ops::embedding_forward({.threads = train_.threads}, {.ids = list, .weight = home, .y = through});
  });
  std::vector<Lane::Copy> copies = {{.to = rows.ids, .from = ids}};
  if (filled) copies.push_back({.to = rows_of(rows.table, count), .from = through});
  passed_ = up_.copy(ctx, copies, gathered);
  std::vector<OwnedTensor> coming;
  coming.push_back(std::move(rows.ids));
  coming.push_back(std::move(rows.table));
  coming = InFlight(std::move(coming), passed_).join(ctx);
  rows.ids = std::move(coming[0]);
  rows.table = std::move(coming[1]);
  return rows;
}

StreamedVocabulary::Rows StreamedVocabulary::embedding(const Context& ctx, const StepBuffers& buffers, int64_t micro) {
  const TrainedParameter& embedding = of(parameters_.embedding);
  Rows rows = bring(ctx, buffers, micro, embedding.weight, updated(parameters_.embedding_part()), true,
                    "embedding rows", MemoryClass::weights);
  // Tokens that do not occur have no gradient. A head that is the embedding writes all of it.
  if (!tied_ && !cleared_ && !ctx.measuring()) {
    const Tensor gradient = embedding.gradient;
    rows_home_ = worker().add([gradient, after = Moment::all({updated(parameters_.embedding_part()), norm_read_})] {
      after.wait();
      std::memset(gradient.data, 0, static_cast<size_t>(gradient.bytes()));
    });
    cleared_ = true;
  }
  return rows;
}

StreamedVocabulary::Rows StreamedVocabulary::gradient(const Context& ctx, const StepBuffers& buffers, int64_t micro) {
  return bring(ctx, buffers, micro, of(parameters_.embedding).gradient, rows_home_, tied_ || embedding_written_,
               "embedding rows.grad", MemoryClass::gradients);
}

void StreamedVocabulary::send_home(const Context& ctx, Rows rows) {
  (void)leaving_.join(ctx);
  embedding_written_ = true;
  const Tensor home = of(parameters_.embedding).gradient;
  Moment sent;
  if (!ctx.measuring()) {
    const auto count = static_cast<int64_t>(rows.tokens->size());
    const Tensor through = passing(home.dtype, count);
    const Lane::Copy copy{.to = through, .from = rows_of(rows.table, count)};
    sent = down_.copy(ctx, {&copy, 1}, passed_);
    passed_ = rows_home_ = worker().add([=, tokens = rows.tokens] {
      sent.wait();
      const int64_t bytes = home.sizes[1] * size_of(home.dtype);
      for (size_t i = 0; i < tokens->size(); ++i) {
        std::memcpy(home.as<std::byte>() + (*tokens)[i] * bytes,
                    through.as<std::byte>() + static_cast<int64_t>(i) * bytes, static_cast<size_t>(bytes));
      }
    });
  }
  std::vector<OwnedTensor> leaving;
  leaving.push_back(std::move(rows.table));
  leaving_ = InFlight(std::move(leaving), sent);
}

bool StreamedVocabulary::begin_loss() {
  adds_ = std::exchange(head_written_, true);
  sums_home_ = panels_home();
  return adds_;
}

void StreamedVocabulary::finish_loss(const Context& ctx) {
  weights_.close();
  finish(ctx);
}

Tensor StreamedVocabulary::weight(const Context& ctx, ops::Classes now, ops::Classes next) {
  return weights_.take(ctx, of(parameters_.head).weight, now, next, up_, updated(parameters_.head_part()), "head panel",
                       MemoryClass::weights);
}

Tensor StreamedVocabulary::dweight(const Context& ctx, ops::Classes now, ops::Classes next) {
  constexpr const char* kName = "head panel.grad";
  const Tensor& home = of(parameters_.head).gradient;
  if (adds_) {
    (void)sums_.take(ctx, home, now, next, up_, sums_home_, kName, MemoryClass::gradients);
    dweight_ = sums_.take_out();
  } else {
    dweight_ = {ctx, kName, home.dtype, {now.end - now.begin, home.sizes[1]}, MemoryClass::gradients};
  }
  return dweight_;
}

void StreamedVocabulary::written(const Context& ctx, ops::Classes now) {
  (void)leaving_.join(ctx);
  const Lane::Copy copy{.to = of(parameters_.head).gradient.view.slice(0, now.begin, now.end), .from = dweight_};
  panels_home() = down_.copy(ctx, {&copy, 1});
  std::vector<OwnedTensor> leaving;
  leaving.push_back(std::move(dweight_));
  leaving_ = InFlight(std::move(leaving), panels_home());
}

void StreamedVocabulary::norm(const Context& ctx, int parameter, const Tensor& pieces) {
  const Tensor& gradient = of(parameter).gradient;
  const int64_t elements = gradient.elements();
  const Tensor flat = gradient.reshape({elements});
  const auto part = [&](int64_t begin) {
    return ops::Classes{std::min(begin, elements), std::min(begin + kNormElements, elements)};
  };
  Window window;
  int64_t piece = 0;
  for (int64_t begin = 0; begin < elements; begin += kNormElements) {
    const Tensor now = window.take(ctx, flat, part(begin), part(begin + kNormElements), up_, arrived(parameter),
                                   "gradient for its norm", MemoryClass::gradients);
    const int64_t count = ops::norm_pieces(ctx.device, now.elements());
    ops::global_norm(ctx, {.tensors = {&now, 1}, .pieces = pieces.slice(0, piece, piece + count)});
    piece += count;
  }
  if (!ctx.measuring()) norm_read_ = Moment::of(ctx);
}

}  // namespace tigon
