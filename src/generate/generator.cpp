// A forward pass as Step has it, less what only training needs: attention reads a cache, and the head sees the last
// token of each sequence alone.
#include "tigon/generate/generator.hpp"

#include <algorithm>

#include "generate/frozen_model.hpp"
#include "tigon/core/error.hpp"
#include "tigon/ops/embedding.hpp"
#include "train/next_token.hpp"
#include "train/weights_io.hpp"

namespace tigon {

namespace {

TrainConfig config_of(const ModelConfig& model, const FrozenOptions& options, int64_t batch, int64_t context) {
  const auto refuse = [](const char* where, const char* what, std::string expected, int64_t got) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where, .what = what, .expected = std::move(expected), .got = std::to_string(got)});
  };
  if (batch < 1 || batch > 1 << 16) refuse("batch", "the number of sequences", "1 to 65536", batch);
  const int64_t longest = std::min(model.longest_sequence(), kLongestSequence);
  if (context < 1 || context > longest) {
    refuse("context", "prompt and answer are too long for this model",
           "1 to " + std::to_string(longest) + " tokens together", context);
  }
  TrainConfig config = frozen_config(options);
  config.batch = config.seq = 1;  // of the step's own buffers, which nobody uses here
  return config;
}

}  // namespace

struct Generator::Impl {
  Impl(const ModelConfig& model, const FrozenOptions& options, int64_t batch_size, int64_t context_size)
      : batch(batch_size),
        context(context_size),
        frozen(model, config_of(model, options, batch, context),
               [this, &model, &options](const Context& ctx) { return take_cache(ctx, model, options); }) {}

  std::vector<OwnedTensor> take_cache(const Context& ctx, const ModelConfig& model,
                                      const FrozenOptions& options) const {
    std::vector<OwnedTensor> cache;
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      for (const char* name : {".keys", ".values"}) {
        cache.emplace_back(ctx, "layers." + std::to_string(layer) + name, options.precision.weight,
                           std::initializer_list<int64_t>{batch, model.kv_heads, context, model.head_dim},
                           MemoryClass::other);
      }
    }
    return cache;
  }

  std::span<const float> pass(int64_t seq, const std::vector<int32_t>& ids, std::span<const int64_t> last,
                              bool as_before);
  OwnedTensor forward(const Context& ctx, const Block& block, const std::vector<int32_t>& ids,
                      std::span<const int64_t> last);
  void check_ids(std::span<const int32_t> ids) const;

  int64_t batch, context;
  FrozenModel frozen;
  std::vector<int64_t> lengths;  // of the sequences
  bool has_prompts = false;
  bool one_before = false;  // the pass before was of one token too, so that its memory serves again
  std::vector<float> logits;
};

Generator::Generator(const ModelConfig& model, const FrozenOptions& options, int64_t batch, int64_t context)
    : impl_(std::make_unique<Impl>(model, options, batch, context)) {}
Generator::~Generator() = default;

void Generator::load_weights(const std::filesystem::path& folder) { impl_->frozen.load_weights(folder); }
void Generator::load_adapters(const std::filesystem::path& folder) { impl_->frozen.load_adapters(folder); }
const ModelConfig& Generator::model() const noexcept { return impl_->frozen.model(); }
int64_t Generator::batch() const noexcept { return impl_->batch; }
int64_t Generator::context() const noexcept { return impl_->context; }
FrozenBytes Generator::bytes() const noexcept { return impl_->frozen.bytes(); }

void Generator::Impl::check_ids(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id >= 0 && id < frozen.model().vocab) continue;
    throw Error(ErrorCode::invalid_argument, {.where = "Generator",
                                              .what = "a token is not in the model's vocabulary",
                                              .expected = "0 to " + std::to_string(frozen.model().vocab - 1),
                                              .got = std::to_string(id)});
  }
}

std::span<const float> Generator::read(const std::vector<std::vector<int32_t>>& prompts) {
  Impl& g = *impl_;
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto seq = static_cast<int64_t>(longest);
  const bool empty = std::any_of(prompts.begin(), prompts.end(), [](const auto& prompt) { return prompt.empty(); });
  if (static_cast<int64_t>(prompts.size()) != g.batch || empty || seq > g.context) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "Generator::read",
                 .what = "the prompts do not fit",
                 .expected = std::to_string(g.batch) + " of 1 to " + std::to_string(g.context) + " tokens",
                 .got = std::to_string(prompts.size()) + ", the longest of " + std::to_string(seq)});
  }
  // Shorter ones are filled up behind their ends, where nobody before sees it and what comes next takes its place.
  std::vector<int32_t> ids;
  std::vector<int64_t> last;
  for (const auto& prompt : prompts) {
    g.check_ids(prompt);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.resize(ids.size() + longest - prompt.size(), prompt.back());
    last.push_back(static_cast<int64_t>(prompt.size()) - 1);
  }
  g.has_prompts = false;
  g.lengths.assign(prompts.size(), 0);
  for (const OwnedTensor& t : g.frozen.beside()) fill_zero(g.frozen.transfers(), t);
  g.one_before = false;
  const auto logits = g.pass(seq, ids, last, false);
  for (size_t b = 0; b < prompts.size(); ++b) g.lengths[b] = last[b] + 1;
  g.has_prompts = true;
  return logits;
}

std::span<const float> Generator::add(std::span<const int32_t> tokens) {
  Impl& g = *impl_;
  const bool full = std::any_of(g.lengths.begin(), g.lengths.end(), [&](int64_t n) { return n >= g.context; });
  if (static_cast<int64_t>(tokens.size()) != g.batch || !g.has_prompts || full) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "Generator::add",
                 .what = !g.has_prompts ? "no prompt was read"
                         : full         ? "the context is full"
                                        : "not a token each",
                 .expected = std::to_string(g.batch) + " tokens, behind at most " + std::to_string(g.context - 1)});
  }
  g.check_ids(tokens);
  const std::vector<int64_t> last(tokens.size(), 0);
  const auto logits = g.pass(1, {tokens.begin(), tokens.end()}, last, g.one_before);
  g.one_before = true;
  for (int64_t& n : g.lengths) ++n;
  return logits;
}

std::span<const float> Generator::Impl::pass(int64_t seq, const std::vector<int32_t>& ids,
                                             std::span<const int64_t> last, bool as_before) {
  const TrainConfig& train = frozen.train();
  const Block block({.config = frozen.model(),
                     .batch = batch,
                     .seq = seq,
                     .dtype = train.precision.weight,
                     .lora = train.lora,
                     .cached = true},
                    0);
  frozen.run(
      [&](const Context& ctx) {
        const OwnedTensor result = forward(ctx, block, ids, last);
        if (ctx.measuring()) return;
        std::vector<std::byte> bytes(static_cast<size_t>(result.view.bytes()));
        copy_from(ctx, bytes.data(), result);
        logits.resize(static_cast<size_t>(result.view.elements()));
        widen(result.view.dtype, bytes, logits);
      },
      as_before);
  return logits;
}

OwnedTensor Generator::Impl::forward(const Context& ctx, const Block& block, const std::vector<int32_t>& ids,
                                     std::span<const int64_t> last) {
  const ModelConfig& model = frozen.model();
  const ParameterList& parameters = frozen.parameters();
  const int64_t seq = block.shape().seq, tokens = batch * seq;
  const auto given = [&](const char* name, const std::vector<int32_t>& values, std::initializer_list<int64_t> sizes) {
    OwnedTensor t(ctx, name, DType::i32, sizes, MemoryClass::other);
    if (!ctx.measuring()) copy_to(ctx, t, values.data());
    return t;
  };
  std::vector<int32_t> places;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < seq; ++i) places.push_back(static_cast<int32_t>(length + i));
  }
  const OwnedTensor id_tensor = given("token ids", ids, {tokens});
  const OwnedTensor positions = given("positions", places, {batch, seq});

  // Two frames suffice: a block reads what the one below left, and nothing older.
  std::array<BlockValues, 2> values;
  OwnedTensor x(ctx, "layers.0.x", block.shape().dtype, {tokens, model.hidden}, MemoryClass::layer_inputs);
  {
    const WeightLease lease = frozen.weights().acquire(ctx, parameters.embedding_part(), parameters.block_part(0));
    ops::embedding_forward(
        ctx, {.ids = id_tensor, .weight = lease[parameters.embedding], .y = x, .scale = model.embedding_scale});
  }
  values[0][Slot::x] = std::move(x);
  Stream stream;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const int next = layer + 1 < model.layers ? parameters.block_part(layer + 1) : parameters.head_part();
    const WeightLease lease = frozen.weights().acquire(ctx, parameters.block_part(layer), next);
    const BlockTensors weight = lease.block(parameters.blocks[static_cast<size_t>(layer)]);
    const auto of_layer = static_cast<size_t>(2 * layer);
    const KeyValueCache cache{
        .keys = frozen.beside()[of_layer], .values = frozen.beside()[of_layer + 1], .lengths = lengths};
    const BlockRun run{.ctx = ctx,
                       .shape = block.shape(),
                       .layer = layer,
                       .weight = weight,
                       .values = values[static_cast<size_t>(layer % 2)],
                       .cache = &cache,
                       .positions = positions};
    stream = block.forward(run, std::move(stream), false);
  }
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < batch; ++b) rows.push_back(b * seq + last[static_cast<size_t>(b)]);
  return next_token_logits(ctx, model, parameters, frozen.weights(), std::move(stream), rows);
}

}  // namespace tigon
