#include "generate/frozen_model.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"
#include "train/nf4_home.hpp"
#include "train/residency/nf4_weights.hpp"
#include "train/weights_io.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

// Nothing is trained, so there are neither gradients nor states.
ParameterList frozen(ParameterList list) {
  for (Parameter& parameter : list.all) parameter.trains = false;
  for (Part& part : list.parts) part.trained = part.end;
  return list;
}

}  // namespace

TrainConfig frozen_config(const FrozenOptions& options) {
  TrainConfig config;
  config.device = options.device;
  config.threads = options.threads;
  config.precision = options.precision;
  config.lora = options.lora;
  config.base = options.base;
  return config;
}

Precision stored_precision(const fs::path& folder) {
  const TensorFiles files = TensorFiles::open(folder);
  for (const auto& [name, tensor] : files.tensors()) {
    if (tensor.dtype == DType::bf16) return precision_from_string("bf16");
    if (tensor.dtype == DType::f16) return precision_from_string("fp16");
  }
  return precision_from_string("fp32");
}

BaseFormat stored_base(const fs::path& folder) {
  const TensorFiles files = TensorFiles::open(folder);
  const bool bits = std::any_of(files.tensors().begin(), files.tensors().end(),
                                [&](const auto& tensor) { return is_nf4(files, tensor.first); });
  return bits ? BaseFormat::nf4 : BaseFormat::full;
}

FrozenModel::Pass::Pass(Sequence&& measured, Device device)
    : sequence(std::move(measured)),
      memory(device, sequence.plan.bytes()),
      arena(sequence.plan, memory.data(), sequence.plan.bytes(), memory.on_host()) {}

FrozenModel::FrozenModel(const ModelConfig& model, const TrainConfig& train, const Beside& beside)
    : model_(model),
      train_(train),
      parameters_(frozen(ParameterList(model_, train_.lora))),
      stays_(measured(beside)),
      disk_(DiskOptions{}, 0),
      memory_(train_.device, stays_.plan.bytes()),
      arena_(stays_.plan, memory_.data(), stays_.plan.bytes(), memory_.on_host()),
      residents_({.device = in(arena_), .pinned = {}, .host = {}, .disk = disk_}, parameters_, model_, train_),
      beside_(beside(in(arena_))),
      weights_(train_.base == BaseFormat::nf4 ? std::unique_ptr<WeightSource>(new Nf4Weights(
                                                    parameters_, residents_, train_.precision.weight, nullptr))
                                              : std::make_unique<ResidentWeights>(parameters_, residents_)) {
  for (const OwnedTensor& t : beside_) bytes_.cache += align_up(t.view.bytes());
  bytes_.weights = stays_.plan.bytes() - bytes_.cache;
}

Sequence FrozenModel::measured(const Beside& beside) {
  Sequence sequence;
  {
    MeasureArena arena(sequence.ledger);
    Ledger none;
    Disk disk(none);
    const Residents weights({.device = in(arena), .pinned = {}, .host = {}, .disk = disk}, parameters_, model_, train_);
    const std::vector<OwnedTensor> more = beside(in(arena));
  }
  sequence.plan = Plan::pack(sequence.ledger);
  return sequence;
}

void FrozenModel::load_weights(const fs::path& folder) {
  const TensorFiles files = TensorFiles::open(folder);
  check_weights(parameters_, model_.tied_embeddings, files, FilesOf::model, train_.base);
  has_weights_ = false;
  tigon::load_weights(transfers(), parameters_, files, FilesOf::model, residents_);
  has_weights_ = true;
}

void FrozenModel::load_adapters(const fs::path& folder) {
  const TensorFiles files = TensorFiles::open(folder / kAdapterWeights);
  check_weights(parameters_, false, files, FilesOf::adapters);
  has_adapters_ = false;
  tigon::load_weights(transfers(), parameters_, files, FilesOf::adapters, residents_);
  has_adapters_ = true;
}

void FrozenModel::run(const std::function<void(const Context&)>& pass, bool as_before) {
  if (!has_weights_ || (train_.lora.any() && !has_adapters_)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "model",
                 .what = has_weights_ ? "the adapters were not loaded" : "it has no weights",
                 .fix = "Load them first."});
  }
  if (!as_before || !pass_) {
    pass_.reset();  // two of them need not fit
    Sequence sequence;
    {
      MeasureArena arena(sequence.ledger);
      pass(in(arena));
    }
    sequence.plan = Plan::pack(sequence.ledger);
    bytes_.transient = std::max(bytes_.transient, sequence.plan.bytes());
    pass_ = std::make_unique<Pass>(std::move(sequence), train_.device);
  }
  pass(in(pass_->arena));
  pass_->arena.restart();
}

}  // namespace tigon
