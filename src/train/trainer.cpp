#include "tigon/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "tigon/core/error.hpp"
#include "tigon/core/scope.hpp"
#include "train/checkpoint.hpp"
#include "train/device_block.hpp"
#include "train/observers.hpp"
#include "train/residency/residency.hpp"
#include "train/room.hpp"
#include "train/stage_counter.hpp"
#include "train/step.hpp"
#include "train/wait_clock.hpp"
#include "train/weights_io.hpp"

namespace tigon {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostConfig = int64_t{1} << 24;

// A stream where there are streams.
struct Queue {
  explicit Queue(Device device) {
    if (device.kind != DeviceKind::cpu) stream.emplace(device);
  }
  void* get() const { return stream ? stream->get() : nullptr; }
  std::optional<DeviceStream> stream;
};

// `bytes`, if the host has room for all of `sum`.
int64_t with_room(int64_t sum, int64_t bytes) {
  if (sum > 0) check_host_memory(sum);
  return bytes;
}

// Whether forward and backward are recorded once and then launched whole: the device does not wait for the host, which
// matters where kernels are short.
bool records(const TrainConfig& train) {
  const char* wanted = std::getenv("TIGON_GRAPHS");
  if (wanted != nullptr && std::string_view(wanted) == "off") return false;
  // Early updates change from step to step, and a graph of copies or of all micro-batches would be large.
  return train.device.kind == DeviceKind::cuda && !train.memory.update_early && !train.memory.homes.any_away() &&
         train.micros_at_once() == 1;
}

}  // namespace

struct Trainer::Impl {
  Impl(const ModelConfig& model_config, const TrainConfig& train_config)
      : model(model_config),
        parameters(model, train_config.lora),
        plan(plan_memory(model, parameters, train_config)),
        train(plan.train),
        memory(train.device, plan.total_bytes()),
        pinned_memory(with_room(plan.pinned_bytes() + plan.host_bytes(), plan.pinned_bytes())),
        host_memory(plan.host_bytes()),
        disk(train.memory.disk, plan.disk_bytes()),
        compute(train.device),
        transfer(train.device),
        resident_arena(plan.residents.plan, memory.data(), plan.resident_bytes(), memory.on_host()),
        pinned_arena(plan.pinned.plan, pinned_memory.data(), plan.pinned_bytes()),
        host_arena(plan.host.plan, host_memory.data(), plan.host_bytes()),
        residents(
            {.device = context(resident_arena), .pinned = host(pinned_arena), .host = host(host_arena), .disk = disk},
            parameters, model, train),
        residency(model, parameters, train, residents),
        step(model, parameters, train),
        speech_config(speaking(train)),
        loss_scale(train.precision.loss_scale),
        config_text(train.lora.any() ? lora_to_json(train.lora, {})
                                     : model_config_to_json(model, train.precision.weight)) {
    if (train.device.kind != DeviceKind::cpu) pinned.emplace(train.device, pinned_memory.data(), plan.pinned_bytes());
    if (train.speaks > 0) speech.emplace(model, parameters, speech_config);
    std::byte* region = memory.data() + plan.resident_bytes();
    for (const Sequence& sequence : plan.phases) {
      phases.emplace_back(sequence.plan, region, plan.transient_bytes(), memory.on_host());
    }
  }

  ReplayArena& memory_of(Phase phase) { return phases[static_cast<size_t>(phase)]; }
  Context context(Phase phase) {
    return context(watched.empty() ? memory_of(phase) : *watched[static_cast<size_t>(phase)]);
  }
  Context context(MemorySource& source) {
    return {.device = train.device,
            .stream = compute.get(),
            .threads = train.threads,
            .memory = &source,
            .observer = &observers};
  }
  Context host(MemorySource& source) const { return {.threads = train.threads, .memory = &source}; }
  // For copies to and from the host: they must not wait behind a running step.
  Context transfers() const { return {.device = train.device, .stream = transfer.get(), .threads = train.threads}; }

  struct Pending {
    StepReport report;
    size_t buffers = 0;
    int64_t counted = 0;
    std::unique_ptr<DeviceEvent> done{};
    WaitClock::Step waits{};
  };
  // A moment of the stream that computes; none where nothing is queued.
  std::unique_ptr<DeviceEvent> moment(const Context& ctx) const {
    if (train.device.kind == DeviceKind::cpu) return nullptr;
    auto event = std::make_unique<DeviceEvent>(train.device);
    event->record(ctx);
    return event;
  }

  // Weights are there, and whole.
  void check_ready(const char* where) const;
  // The weights of `files`. They are checked before any is overwritten; where a read fails after that, there are none.
  void load(const TensorFiles& files, FilesOf what);
  void initialize(FilesOf what);
  // Weights of a run that has not begun.
  void begin_anew();
  void check_idle(const char* where) const;
  // All that ops would refuse in the middle of a step, and a count that would quietly scale the gradient.
  void check_batch(const char* where, const TokenBatch& batch) const;
  void hand_in(const TokenBatch& batch, const StepBuffers& b, int64_t micro) const;
  void run_micro(const StepBuffers& b, GradientSink& sink, bool first, size_t graph);
  void run_gradients(size_t which, GradientSink& sink);
  bool gradients_finite(const StepBuffers& b) const;
  // Weights and config. The checksum of each file by its name.
  std::map<std::string, uint64_t> write_model(const std::filesystem::path& folder) const;
  void write_gradients();

  ModelConfig model;
  ParameterList parameters;
  MemoryPlan plan;
  TrainConfig train;
  DeviceBlock memory;
  HostMemory pinned_memory, host_memory;
  std::optional<Pinned> pinned;
  Disk disk;  // before the memory that it reads and writes goes, it ends
  Queue compute, transfer;
  ReplayArena resident_arena, pinned_arena, host_arena;
  std::deque<ReplayArena> phases;
  StageCounter stages;
  WaitClock waits;
  std::optional<NvtxRanges> ranges;
  Observers observers{{&stages, &waits}};
  Recorder* recorder = nullptr;
  std::vector<MemorySource*> watched;  // the phases' memory as the recorder hands it on; empty: nobody records
  Residents residents;
  Residency residency;
  Step step;
  TrainConfig speech_config;
  std::optional<Step> speech;                            // continues a text
  bool warm = false;                                     // a step has run, so that libraries have made their choices
  std::array<std::unique_ptr<DeviceGraph>, 2> recorded;  // forward and backward of a micro-batch
  LossScale loss_scale;
  Traffic moved;  // by steps
  std::string config_text, run_text;
  std::deque<Pending> pending;
  std::unique_ptr<DeviceEvent> step_began;  // the end of the last step collected, or when the first was submitted
  bool has_weights = false;
  bool unfinished = false;  // a step or an evaluation that an error left half-way
  int64_t steps_submitted = 0;
  int64_t updates = 0;
  size_t next_buffers = 0;
  fs::path gradient_file;
};

Trainer::Trainer(const ModelConfig& model, const TrainConfig& train) : impl_(std::make_unique<Impl>(model, train)) {}
Trainer::~Trainer() {
  if (impl_->train.device.kind == DeviceKind::cpu) return;
  // Nothing may still use the memory that goes now. What fails here has failed before, and somebody has heard of it.
  const auto quietly = [](const auto& wait) {
    try {
      wait();
    } catch (const std::exception&) {  // NOLINT
    }
  };
  quietly([&] { impl_->residency.finish(); });
  quietly([&] { synchronize(impl_->context(Phase::step)); });
}

const ModelConfig& Trainer::model() const noexcept { return impl_->model; }
const TrainConfig& Trainer::config() const noexcept { return impl_->train; }
const ParameterList& Trainer::parameters() const noexcept { return impl_->parameters; }
const MemoryPlan& Trainer::plan() const noexcept { return impl_->plan; }
int64_t Trainer::pending() const noexcept { return static_cast<int64_t>(impl_->pending.size()); }
int64_t Trainer::step() const noexcept { return impl_->steps_submitted; }
int64_t Trainer::skipped() const noexcept { return impl_->loss_scale.skipped(); }
const StageRuns& Trainer::stage_runs() const noexcept { return impl_->stages.runs(); }
void Trainer::finish() const { impl_->residency.finish(); }
Traffic Trainer::traffic() const noexcept {
  Traffic traffic = impl_->moved;
  impl_->residency.add_updates(traffic);
  traffic.disk = impl_->disk.traffic();
  return traffic;
}
void Trainer::set_config_text(std::string text) {
  if (!impl_->train.lora.any()) impl_->config_text = std::move(text);
}
void Trainer::set_base_name(std::string name) {
  if (impl_->train.lora.any()) impl_->config_text = lora_to_json(impl_->train.lora, name);
}
void Trainer::set_run_text(std::string text) { impl_->run_text = std::move(text); }
void Trainer::record(Recorder& recorder) {
  Impl& t = *impl_;
  t.recorder = &recorder;
  t.observers.add(recorder);
  const int64_t stays = t.plan.resident_bytes();
  recorder.set_memory(t.train.device, reinterpret_cast<uintptr_t>(t.memory.data()),
                      {{.name = "what stays", .offset = 0, .bytes = stays},
                       {.name = "what a step needs", .offset = stays, .bytes = t.plan.transient_bytes()}});
  recorder.add_resident(t.plan.residents.plan, 0);
  for (size_t phase = 0; phase < kPhaseCount; ++phase)
    t.watched.push_back(&recorder.watch(t.phases[phase], t.plan.phases[phase].plan, stays));
}
void Trainer::mark_ranges() {
  impl_->ranges.emplace(impl_->train.device);
  impl_->observers.add(*impl_->ranges);
}
void Trainer::save_next_gradients(const fs::path& file) {
  if (impl_->train.memory.update_early) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "gradients", .what = "with early updates the gradients are never all there"});
  }
  impl_->gradient_file = file;
}

int64_t Trainer::most_pending() const noexcept {
  // A dynamic loss scale is read by the host in every step anyway.
  return impl_->train.precision.loss_scale.dynamic ? 1 : static_cast<int64_t>(impl_->residents.buffers.size());
}

int64_t Trainer::used_bytes() const noexcept {
  int64_t transient = 0;
  for (const ReplayArena& phase : impl_->phases) transient = std::max(transient, phase.used_bytes());
  return align_up(impl_->resident_arena.used_bytes()) + align_up(transient);
}

SpaceBytes Trainer::used() const noexcept {
  return {.device = used_bytes(),
          .pinned = align_up(impl_->pinned_arena.used_bytes()),
          .host = align_up(impl_->host_arena.used_bytes()),
          .disk = impl_->disk.used_bytes()};
}

std::string Trainer::disk_text() const { return impl_->disk.text(); }

void Trainer::Impl::check_ready(const char* where) const {
  if (!has_weights) {
    throw Error(ErrorCode::invalid_argument, {.where = where,
                                              .what = "there are no whole weights",
                                              .fix = "Call initialize, load_weights or restore_checkpoint first."});
  }
  if (unfinished) {
    throw Error(ErrorCode::invalid_argument, {.where = where,
                                              .what = "an error left a step half-way, and the state is not whole",
                                              .fix = "Make a new Trainer and restore the last checkpoint."});
  }
}

void Trainer::Impl::check_idle(const char* where) const {
  if (pending.empty()) return residency.finish();
  throw Error(ErrorCode::invalid_argument,
              {.where = where, .what = "a step is under way", .fix = "Collect what was submitted first."});
}

void Trainer::Impl::check_batch(const char* where, const TokenBatch& batch) const {
  const auto fail = [&](std::string what, std::string expected, std::string got) {
    throw Error(ErrorCode::invalid_argument,
                {.where = where, .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
  };
  const auto tokens = static_cast<size_t>(train.tokens());
  if (batch.ids.size() != tokens || batch.labels.size() != tokens) {
    fail("a micro-batch has the wrong size", fmt::format("{} ids and labels, batch·seq", tokens),
         fmt::format("{} ids and {} labels", batch.ids.size(), batch.labels.size()));
  }
  if (batch.starts.size() != (train.documents_apart ? tokens : 0)) {
    fail("the starts of documents do not fit",
         train.documents_apart ? fmt::format("{}, of each token", tokens)
                               : "none (TrainConfig::documents_apart is not set)",
         std::to_string(batch.starts.size()));
  }
  for (size_t i = 0; i < batch.starts.size(); ++i) {
    const auto place = static_cast<int64_t>(i) % train.seq;
    const int32_t least = place > 0 ? batch.starts[i - 1] : 0;
    if (batch.starts[i] >= least && batch.starts[i] <= place) continue;
    fail(fmt::format("the start of the document of position {} makes no sense", i),
         fmt::format("{} to {}", least, place), std::to_string(batch.starts[i]));
  }
  const auto known = [&](int32_t token) { return token >= 0 && token < model.vocab; };
  const std::string range = fmt::format("0 to {}", model.vocab - 1);
  int64_t counted = 0;
  for (size_t i = 0; i < tokens; ++i) {
    const int32_t id = batch.ids[i], label = batch.labels[i];
    if (!known(id)) fail(fmt::format("the id at position {} is out of range", i), range, std::to_string(id));
    if (label == train.ignore_index) continue;
    if (!known(label)) {
      fail(fmt::format("the label at position {} is out of range", i),
           fmt::format("{} or the ignore index {}", range, train.ignore_index), std::to_string(label));
    }
    ++counted;
  }
  if (counted != batch.counted) {
    fail("'counted' is not the number of labels that are not the ignore index", std::to_string(counted),
         std::to_string(batch.counted));
  }
}

void Trainer::Impl::hand_in(const TokenBatch& batch, const StepBuffers& b, int64_t micro) const {
  copy_to(transfers(), b.micro_ids(micro), batch.ids.data());
  copy_to(transfers(), b.micro_labels(micro), batch.labels.data());
  if (!train.documents_apart) return;
  std::vector<int32_t> positions;
  for (size_t i = 0; i < batch.starts.size(); ++i)
    positions.push_back(static_cast<int32_t>(static_cast<int64_t>(i) % train.seq) - batch.starts[i]);
  copy_to(transfers(), b.micro_starts(micro, train.seq), batch.starts.data());
  copy_to(transfers(), b.micro_positions(micro, train.seq), positions.data());
}

void Trainer::Impl::load(const TensorFiles& files, FilesOf what) {
  check_weights(parameters, model.tied_embeddings, files, what, train.base);
  has_weights = false;
  tigon::load_weights(transfers(), parameters, files, what, residents);
  residency.refresh(context(Phase::step));
}

void Trainer::Impl::initialize(FilesOf what) {
  has_weights = false;
  initialize_weights(transfers(), parameters, train.seed, what, residents);
  residency.refresh(context(Phase::step));
}

void Trainer::Impl::begin_anew() {
  clear_states(transfers(), residents);
  steps_submitted = updates = 0;
  loss_scale = LossScale(train.precision.loss_scale);
  has_weights = true;
}

void Trainer::initialize() {
  impl_->check_idle("Trainer::initialize");
  impl_->initialize(FilesOf::model);
  impl_->initialize(FilesOf::adapters);
  impl_->begin_anew();
}

void Trainer::load_weights(const fs::path& folder) {
  impl_->check_idle("Trainer::load_weights");
  impl_->load(TensorFiles::open(folder), FilesOf::model);
  impl_->initialize(FilesOf::adapters);
  impl_->begin_anew();
}

void Trainer::load_adapters(const fs::path& folder) {
  Impl& t = *impl_;
  t.check_idle("Trainer::load_adapters");
  t.check_ready("Trainer::load_adapters");
  const fs::path config = folder / kAdapterConfig;
  const LoraConfig theirs = lora_from_json(read_text_file(config, kMostConfig), config.string());
  if (theirs != t.train.lora) {
    throw Error(ErrorCode::invalid_argument, {.where = config.string(),
                                              .what = "these are other adapters than the run's",
                                              .expected = lora_to_string(t.train.lora),
                                              .got = lora_to_string(theirs)});
  }
  t.load(TensorFiles::open(folder / kAdapterWeights), FilesOf::adapters);
  t.begin_anew();
}

bool Trainer::Impl::gradients_finite(const StepBuffers& b) const {
  float norm = 0;
  copy_from({.device = train.device, .stream = compute.get()}, &norm, b.norm());
  return std::isfinite(norm);
}

void Trainer::Impl::write_gradients() {
  if (gradient_file.empty()) return;
  const Context ctx{.device = train.device, .stream = compute.get()};
  (void)write_safetensors(gradient_file, parts_to_store(ctx, parameters, residency.step_gradients(), residents));
  gradient_file.clear();
}

// Loss and gradients of one micro-batch, as the first of a step or a further one: queued kernel by kernel, or by
// launching what was recorded. `graph` is its place in `recorded`.
void Trainer::Impl::run_micro(const StepBuffers& b, GradientSink& sink, bool first, size_t graph) {
  Context ctx = context(first ? Phase::step : Phase::further);
  const auto walk = [&] {
    step.forward_backward(ctx, residency.weights(), residency.vocabulary(), sink, residency.inputs(), b);
  };
  if (!records(train) || !warm || (recorder != nullptr && recorder->on())) return walk();
  if (recorded[graph] == nullptr) {
    recorded[graph] = std::make_unique<DeviceGraph>(ctx, walk);
  } else {
    ctx.books_only = true;  // the host must know where everything lies; gradients outlive this walk
    walk();
  }
  recorded[graph]->launch(ctx);
}

// The gradients of a step. However many micro-batches it has, two graphs are recorded: with one, for each set of
// buffers; with several, for the first, which overwrites gradients, and for the others, which add to them.
void Trainer::Impl::run_gradients(size_t which, GradientSink& sink) {
  const StepBuffers& b = residents.buffers[which];
  residency.begin_step();
  if (!residents.turn) run_micro(b, sink, true, which);
  for (int64_t micro = 0; residents.turn && micro < train.accumulate; ++micro) {
    const bool first = micro == 0;
    StepBuffers& turn = *residents.turn;
    if (train.streams_vocabulary()) {
      const auto ids = b.host_micro_ids(micro);
      turn.host_ids.assign(ids.begin(), ids.end());
    }
    const Phase phase = first ? Phase::step : Phase::further;
    const Context ctx = context(phase);
    if (first) queue_copy(ctx, turn.loss_grad, b.loss_grad);
    queue_copy(ctx, turn.ids, b.micro_ids(micro));
    queue_copy(ctx, turn.labels, b.micro_labels(micro));
    if (train.documents_apart) {
      queue_copy(ctx, turn.starts, b.micro_starts(micro, train.seq));
      queue_copy(ctx, turn.positions, b.micro_positions(micro, train.seq));
    }
    run_micro(turn, sink, first, first ? 0 : 1);
    queue_copy(ctx, b.loss(micro), turn.loss(0));
    memory_of(phase).restart();
  }
  warm = true;
}

void Trainer::submit(const std::vector<TokenBatch>& micros) {
  if (static_cast<int64_t>(micros.size()) != impl_->train.accumulate) {
    throw Error(ErrorCode::invalid_argument, {.where = "Trainer::submit",
                                              .what = "the wrong number of micro-batches",
                                              .expected = std::to_string(impl_->train.accumulate),
                                              .got = std::to_string(micros.size())});
  }
  submit_from([&](int64_t micro, TokenBatch& batch) { batch = micros[static_cast<size_t>(micro)]; });
}

void Trainer::submit_from(const std::function<void(int64_t micro, TokenBatch& batch)>& fill) {
  Impl& t = *impl_;
  constexpr const char* kWhere = "Trainer::submit";
  t.check_ready(kWhere);
  if (pending() >= most_pending()) {
    throw Error(ErrorCode::invalid_argument, {.where = kWhere,
                                              .what = "too many steps are under way",
                                              .expected = fmt::format("at most {}", most_pending()),
                                              .fix = "Collect one first."});
  }
  const Phase update_phase = t.train.turns() ? Phase::update : Phase::step;
  const Context step_ctx = t.context(Phase::step), update_ctx = t.context(update_phase);
  const Scope scope(step_ctx, kStepScope, t.steps_submitted + 1);
  // Nobody uses these buffers now: where a batch is refused, nothing has changed.
  StepBuffers& b = t.residents.buffers[t.next_buffers];
  b.host_ids.clear();
  int64_t counted = 0;
  TokenBatch batch;
  for (int64_t micro = 0; micro < t.train.accumulate; ++micro) {
    const Scope data(step_ctx, "data", micro);
    batch.ids.clear();
    batch.labels.clear();
    batch.starts.clear();
    batch.counted = 0;
    fill(micro, batch);
    t.check_batch(kWhere, batch);
    counted += batch.counted;
    t.hand_in(batch, b, micro);
    if (t.train.streams_vocabulary()) b.host_ids.insert(b.host_ids.end(), batch.ids.begin(), batch.ids.end());
  }
  const auto loss_grad = static_cast<float>(t.loss_scale.scale() / static_cast<double>(std::max<int64_t>(1, counted)));
  copy_to(t.transfers(), b.loss_grad, &loss_grad);

  t.unfinished = true;
  t.waits.give_back(t.waits.take());  // an evaluation's
  const Traffic before = t.residency.traffic();
  Impl::Pending entry{
      .report = {.step = ++t.steps_submitted,
                 .lr = t.train.optimizer.lr * schedule_factor(t.train.schedule, t.steps_submitted, t.train.steps),
                 .loss_scale = t.loss_scale.scale(),
                 .tokens = t.train.tokens() * t.train.accumulate},
      .buffers = t.next_buffers,
      .counted = counted};
  t.next_buffers = (t.next_buffers + 1) % t.residents.buffers.size();

  const UpdateArgs args{.lr = entry.report.lr, .adam_step = t.updates + 1, .loss_scale = entry.report.loss_scale};
  if (t.pending.empty()) t.step_began = t.moment(step_ctx);
  t.run_gradients(entry.buffers, t.residency.gradients(b, args));
  t.write_gradients();
  if (!t.train.memory.update_early) t.residency.norm(update_ctx, b, args.loss_scale);
  const bool dynamic = t.train.precision.loss_scale.dynamic;
  entry.report.skipped = dynamic && !t.loss_scale.update(t.gradients_finite(b));
  if (entry.report.skipped) {
    t.residency.skip_update();
  } else if (!t.residency.updates_early()) {
    t.residency.update(update_ctx, b, args);
  }
  t.updates += entry.report.skipped ? 0 : 1;
  t.memory_of(update_phase).restart();
  entry.done = t.moment(step_ctx);
  entry.waits = t.waits.take();
  t.pending.push_back(std::move(entry));
  const Traffic after = t.residency.traffic();
  t.moved.up_bytes += after.up_bytes - before.up_bytes;
  t.moved.down_bytes += after.down_bytes - before.down_bytes;
  t.unfinished = false;
}

StepReport Trainer::collect() {
  Impl& t = *impl_;
  if (t.pending.empty()) {
    throw Error(ErrorCode::invalid_argument, {.where = "Trainer::collect", .what = "no step was submitted"});
  }
  Impl::Pending entry = std::move(t.pending.front());
  t.pending.pop_front();
  if (entry.done) {
    // By the GPU's clock: the host is ahead of it, and held up where its queue is full.
    entry.report.seconds = t.step_began->ms_until(*entry.done) / 1e3;
    t.step_began = std::move(entry.done);
  }
  entry.report.waits = t.waits.seconds(std::move(entry.waits));
  const StepBuffers& b = t.residents.buffers[entry.buffers];
  std::vector<float> results(static_cast<size_t>(b.results.view.sizes[0]));
  copy_from(t.transfers(), results.data(), b.results);
  double sum = 0;
  for (int64_t i = 0; i < t.train.accumulate; ++i) sum += static_cast<double>(results[static_cast<size_t>(i)]);
  entry.report.loss = sum / static_cast<double>(std::max<int64_t>(1, entry.counted));
  entry.report.grad_norm = static_cast<double>(results[static_cast<size_t>(t.train.accumulate)]);
  if (t.train.memory.update_early) {
    double squares = 0;
    for (size_t i = static_cast<size_t>(t.train.accumulate) + 2; i < results.size(); ++i) {
      squares += static_cast<double>(results[i]) * static_cast<double>(results[i]);
    }
    entry.report.grad_norm = std::sqrt(squares);
  }
  entry.report.finite = std::isfinite(entry.report.grad_norm) && std::isfinite(entry.report.loss);
  return entry.report;
}

double Trainer::evaluate(const TokenBatch& batch) {
  Impl& t = *impl_;
  constexpr const char* kWhere = "Trainer::evaluate";
  if (!t.train.evaluates) {
    throw Error(ErrorCode::invalid_argument, {.where = kWhere,
                                              .what = "evaluation was not planned",
                                              .fix = "Set TrainConfig::evaluates before the Trainer is made."});
  }
  t.check_ready(kWhere);
  t.check_idle(kWhere);
  t.check_batch(kWhere, batch);
  t.unfinished = true;
  StepBuffers& b = t.residents.buffers[0];
  b.host_ids = batch.ids;
  t.hand_in(batch, b, 0);
  const Context ctx = t.context(Phase::evaluation);
  t.step.evaluate(ctx, t.residency.weights(), t.residency.vocabulary(), b);
  t.memory_of(Phase::evaluation).restart();
  t.unfinished = false;
  float loss = 0;
  copy_from(ctx, &loss, b.loss(0));
  return static_cast<double>(loss);
}

std::vector<float> Trainer::next_token(std::span<const int32_t> text) {
  Impl& t = *impl_;
  constexpr const char* kWhere = "Trainer::next_token";
  const bool known = std::all_of(text.begin(), text.end(), [&](int32_t id) { return id >= 0 && id < t.model.vocab; });
  if (text.empty() || static_cast<int64_t>(text.size()) > t.train.speaks || !known) {
    throw Error(ErrorCode::invalid_argument,
                {.where = kWhere,
                 .what = known ? "the text is too long, or empty" : "a token is not in the model's vocabulary",
                 .expected = known ? fmt::format("1 to {} tokens (TrainConfig::speaks)", t.train.speaks)
                                   : fmt::format("0 to {}", t.model.vocab - 1),
                 .got = known ? std::to_string(text.size()) : ""});
  }
  t.check_ready(kWhere);
  t.check_idle(kWhere);
  t.unfinished = true;
  const Context ctx = t.context(Phase::speech);
  std::vector<std::byte> bytes;
  std::vector<float> logits(static_cast<size_t>(t.model.vocab));
  {
    // Filled up behind its end, where nobody before sees it.
    std::vector<int32_t> row(text.begin(), text.end());
    row.resize(static_cast<size_t>(t.train.speaks), text.back());
    const StepBuffers buffers = text_buffers(ctx, t.speech_config);
    copy_to(ctx, buffers.ids, row.data());
    const auto last = static_cast<int64_t>(text.size()) - 1;
    const OwnedTensor scores = t.speech->next_token(ctx, t.residency.weights(), buffers, last);
    bytes.resize(static_cast<size_t>(scores.view.bytes()));
    copy_from(ctx, bytes.data(), scores);
    widen(scores.view.dtype, bytes, logits);
  }
  t.memory_of(Phase::speech).restart();
  t.unfinished = false;
  return logits;
}

std::map<std::string, uint64_t> Trainer::Impl::write_model(const fs::path& folder) const {
  // Of adapters theirs alone: the model beside them is as it was.
  const bool adapters = train.lora.any();
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < parameters.all.size(); ++i)
    tensors.push_back(adapters && !parameters.all[i].adapter ? Tensor{} : residents.parameters[i].weight.view);
  const std::string weights = adapters ? kAdapterWeights : "model.safetensors";
  const std::string config = adapters ? kAdapterConfig : "config.json";
  const uint64_t sum = write_safetensors(
      folder / weights, only_finite(parts_to_store(transfers(), parameters, tensors, residents)), {{"format", "pt"}});
  write_text_file(folder / config, config_text);
  return {{weights, sum}, {config, text_checksum(config_text)}};
}

void Trainer::save_weights(const fs::path& folder) const {
  impl_->check_ready("Trainer::save_weights");
  impl_->check_idle("Trainer::save_weights");
  make_folder(folder);
  (void)impl_->write_model(folder);
}

void Trainer::save_checkpoint(const fs::path& folder, const std::map<std::string, std::string>& settings) const {
  const Impl& t = *impl_;
  t.check_ready("Trainer::save_checkpoint");
  t.check_idle("Trainer::save_checkpoint");
  const Context watched{.observer = &impl_->observers};
  const Scope scope(watched, "save a checkpoint");
  write_checkpoint(folder, [&](const fs::path& inside) {
    std::map<std::string, uint64_t> files = t.write_model(inside);
    if (!t.run_text.empty()) {
      write_text_file(inside / kRunText, t.run_text);
      files[kRunText] = text_checksum(t.run_text);
    }
    files["state.safetensors"] = write_safetensors(
        inside / "state.safetensors", only_finite(states_to_store(t.transfers(), t.parameters, t.residents)));
    return CheckpointInfo{.files = std::move(files),
                          .step = t.steps_submitted,
                          .updates = t.updates,
                          .loss_scale = t.loss_scale.state(),
                          .precision = t.train.precision.name,
                          .settings = settings};
  });
}

void Trainer::restore_checkpoint(const fs::path& folder, const std::map<std::string, std::string>& settings) {
  Impl& t = *impl_;
  t.check_idle("Trainer::restore_checkpoint");
  put_back_checkpoint(folder);
  const CheckpointInfo info = read_checkpoint(folder);
  check_settings(folder, info, t.train.precision.name, settings);
  const bool adapters = t.train.lora.any();
  if (adapters) t.check_ready("Trainer::restore_checkpoint");
  const TensorFiles weights = TensorFiles::open(adapters ? folder / kAdapterWeights : folder);
  const TensorFiles states = TensorFiles::open(folder / "state.safetensors");
  check_states(t.parameters, states, t.residents);
  t.load(weights, adapters ? FilesOf::adapters : FilesOf::model);
  load_states(t.transfers(), t.parameters, states, t.residents);
  t.steps_submitted = info.step;
  t.updates = info.updates;
  t.loss_scale.restore(info.loss_scale);
  t.has_weights = true;
}

}  // namespace tigon
