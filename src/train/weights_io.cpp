#include "train/weights_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tigon/core/error.hpp"
#include "tigon/core/tensor.hpp"
#include "tigon/ops/low_rank.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

constexpr int64_t kPiece = int64_t{1} << 22;  // elements on the host at a time
constexpr const char* kHead = "lm_head.weight";

template <class T>
void narrow_to(const std::vector<float>& values, std::vector<std::byte>& bytes) {
  bytes.resize(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
}

// Elements [first, first + n) of a tensor from f32 values on the host.
void store_values(const Context& ctx, const Residents& r, const Tensor& to, int64_t first,
                  const std::vector<float>& values, std::vector<std::byte>& bytes) {
  narrow(to.dtype, values, bytes);
  r.write(ctx, to, first * size_of(to.dtype), bytes.data(), static_cast<int64_t>(bytes.size()));
}

// The weight, and what copies it: the master.
void store_parameter(const Context& ctx, Residents& r, size_t parameter, int64_t first,
                     const std::vector<float>& values, std::vector<std::byte>& bytes) {
  const TrainedParameter& trained = r.parameters[parameter];
  store_values(ctx, r, trained.weight, first, values, bytes);
  for (const TrainedParameter::State& state : trained.states) {
    if (state.spec.copies_weight) store_values(ctx, r, state.tensor, first, values, bytes);
  }
}

template <class T>
void widen_from(const std::vector<std::byte>& bytes, std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
}

std::vector<int64_t> part_sizes(const Parameter& p, const ParameterPart& part) {
  if (part.columns > 0) return {(part.end - part.begin) / part.columns, part.columns};
  std::vector<int64_t> sizes = p.sizes;
  sizes[0] = part.end - part.begin;
  return sizes;
}

int64_t columns_of(const Parameter& p) { return p.sizes.size() == 2 ? p.sizes[1] : 1; }

// Names in the files that are no parameters: buffers that old versions wrote.
bool is_buffer(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

bool is_of(const Parameter& p, FilesOf what) { return p.adapter == (what == FilesOf::adapters); }

void check_names_and_shapes(const ParameterList& parameters, bool tied, const TensorFiles& files, FilesOf what,
                            BaseFormat base) {
  std::set<std::string> expected;
  for (const Parameter& p : parameters.all) {
    if (!is_of(p, what)) continue;
    for (const ParameterPart& part : p.parts) {
      expected.insert(part.name);
      const StoredTensor* tensor = files.find(part.name);
      if (tensor == nullptr) {
        throw Error(ErrorCode::invalid_argument,
                    {.where = "weights", .what = "'" + part.name + "' is not in the files"});
      }
      const std::vector<int64_t> sizes = part_sizes(p, part);
      if (p.product && is_nf4(files, part.name)) {
        if (base == BaseFormat::nf4) {
          check_nf4(files, part.name, sizes, expected);
          continue;
        }
        throw Error(ErrorCode::invalid_argument, {.where = tensor->file.string(),
                                                  .what = "'" + part.name + "' is in 4 bits",
                                                  .expected = "weights of 16 bits or more, or --lora with --base nf4",
                                                  .fix = "Take the model's 16-bit weights."});
      }
      if (tensor->sizes != sizes || !is_float(tensor->dtype)) {
        throw Error(ErrorCode::invalid_argument,
                    {.where = tensor->file.string(),
                     .what = "'" + part.name + "' does not fit the config",
                     .expected = "floating type " + shape_string(sizes),
                     .got = std::string(to_string(tensor->dtype)) + " " + shape_string(tensor->sizes)});
      }
    }
  }
  if (tied) expected.insert(kHead);  // some files have the shared matrix twice
  for (const auto& [name, tensor] : files.tensors()) {
    if (expected.contains(name) || is_buffer(name)) continue;
    throw Error(ErrorCode::invalid_argument,
                {.where = tensor.file.string(),
                 .what = "'" + name + "' is no weight of " + (what == FilesOf::model ? "this model" : "these adapters"),
                 .fix = "Does the config belong to these files?"});
  }
}

void read_values(const TensorFiles& files, const StoredTensor& tensor, int64_t first, int64_t n,
                 std::vector<std::byte>& bytes, std::vector<float>& values) {
  const int64_t width = size_of(tensor.dtype);
  bytes.resize(static_cast<size_t>(n * width));
  values.resize(static_cast<size_t>(n));
  files.read(tensor, first * width, bytes.data(), n * width);
  widen(tensor.dtype, bytes, values);
}

// A head in the files of a model whose head is the embedding has to be the embedding: what differs was trained apart,
// and leaving it out would make another model of it.
void check_tied_head(const ParameterList& parameters, const TensorFiles& files) {
  const StoredTensor* head = files.find(kHead);
  if (head == nullptr) return;
  const StoredTensor& embedding = *files.find(parameters.all[static_cast<size_t>(parameters.embedding)].parts[0].name);
  bool same = is_float(head->dtype) && head->sizes == embedding.sizes;
  const int64_t elements = embedding.bytes / size_of(embedding.dtype);
  std::vector<std::byte> bytes;
  std::vector<float> ours, theirs;
  for (int64_t first = 0; same && first < elements; first += kPiece) {
    const int64_t n = std::min(kPiece, elements - first);
    read_values(files, embedding, first, n, bytes, ours);
    read_values(files, *head, first, n, bytes, theirs);
    same = std::memcmp(ours.data(), theirs.data(), static_cast<size_t>(n) * sizeof(float)) == 0;
  }
  if (same) return;
  throw Error(ErrorCode::invalid_argument,
              {.where = head->file.string(),
               .what = std::string("'") + kHead + "' is not the embedding, though 'tie_word_embeddings' says so",
               .fix = "Set it to false in config.json, or remove the head from the files."});
}

// Whether no value is infinite or NaN: those have all bits of the exponent set.
template <class Bits>
bool none_has(Bits exponent, const void* data, int64_t bytes) {
  bool found = false;
  for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(Bits)); ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const std::byte*>(data) + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    found |= (bits & exponent) == exponent;
  }
  return !found;
}

bool all_finite(DType dtype, const void* data, int64_t bytes) {
  switch (dtype) {
    case DType::bf16: return none_has<uint16_t>(0x7F80, data, bytes);
    case DType::f16: return none_has<uint16_t>(0x7C00, data, bytes);
    case DType::f32: return none_has<uint32_t>(0x7F800000, data, bytes);
    default: return true;  // codes stand for finite numbers
  }
}

// Where a part of a parameter stays in NF4; null where it does not.
const Nf4Home* nf4_of(const Residents& r, const Parameter& p, size_t parameter, const ParameterPart& part) {
  const std::vector<Nf4Home>& homes = r.parameters[parameter].in_nf4;
  return homes.empty() ? nullptr : &homes[static_cast<size_t>(&part - p.parts.data())];
}

struct NamedState {
  std::string name;
  const Tensor& tensor;
};
std::vector<NamedState> named_states(const ParameterList& parameters, const Residents& r) {
  std::vector<NamedState> list;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    for (const TrainedParameter::State& state : r.parameters[i].states)
      list.push_back({parameters.all[i].name + "." + state.spec.name, state.tensor});
  }
  return list;
}

}  // namespace

void widen(DType dtype, const std::vector<std::byte>& bytes, std::vector<float>& values) {
  switch (dtype) {
    case DType::bf16: return widen_from<bf16>(bytes, values);
    case DType::f16: return widen_from<f16>(bytes, values);
    case DType::f64: return widen_from<double>(bytes, values);
    default: return widen_from<float>(bytes, values);
  }
}

void narrow(DType dtype, const std::vector<float>& values, std::vector<std::byte>& bytes) {
  switch (dtype) {
    case DType::bf16: return narrow_to<bf16>(values, bytes);
    case DType::f16: return narrow_to<f16>(values, bytes);
    case DType::f64: return narrow_to<double>(values, bytes);
    default: return narrow_to<float>(values, bytes);
  }
}

void initialize_weights(const Context& ctx, const ParameterList& parameters, uint64_t seed, FilesOf what,
                        Residents& r) {
  const Context host{.threads = ctx.threads};
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    const Parameter& p = parameters.all[i];
    if (!is_of(p, what)) continue;
    const auto fill = [&](int64_t first, int64_t count) {
      values.resize(static_cast<size_t>(count));
      std::fill(values.begin(), values.end(), static_cast<float>(p.init_mean));
      if (p.init_range == 0) return;
      ops::normal(host, {.y = Tensor::contiguous(values.data(), DType::f32, {count}),
                         .deviation = p.init_range,
                         .seed = seed,
                         .tensor_id = static_cast<uint32_t>(i),
                         .first_element = first});
    };
    if (!r.parameters[i].in_nf4.empty()) {
      fill(0, p.elements());
      for (const ParameterPart& part : p.parts) {
        const auto begin = values.begin() + part.begin * columns_of(p);
        store_nf4(ctx, r, {begin, begin + p.elements_of(part)}, *nf4_of(r, p, i, part));
      }
      continue;
    }
    for (int64_t first = 0; first < p.elements(); first += kPiece) {
      fill(first, std::min(kPiece, p.elements() - first));
      store_parameter(ctx, r, i, first, values, bytes);
    }
  }
}

void check_weights(const ParameterList& parameters, bool tied, const TensorFiles& files, FilesOf what,
                   BaseFormat base) {
  const bool has_tied_head = tied && what == FilesOf::model;
  check_names_and_shapes(parameters, has_tied_head, files, what, base);
  if (has_tied_head) check_tied_head(parameters, files);
}

void load_weights(const Context& ctx, const ParameterList& parameters, const TensorFiles& files, FilesOf what,
                  Residents& r) {
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    const Parameter& p = parameters.all[i];
    if (!is_of(p, what)) continue;
    for (const ParameterPart& part : p.parts) {
      const StoredTensor& tensor = *files.find(part.name);
      const int64_t start = part.begin * columns_of(p), elements = p.elements_of(part);
      const Nf4Home* const in_nf4 = nf4_of(r, p, i, part);
      if (in_nf4 && is_nf4(files, part.name)) {
        load_nf4(ctx, r, files, part.name, *in_nf4);
        continue;
      }
      std::vector<float> whole;  // where it is to be quantized: its mean has to be known first
      if (in_nf4) whole.reserve(static_cast<size_t>(elements));
      for (int64_t first = 0; first < elements; first += kPiece) {
        const int64_t n = std::min(kPiece, elements - first);
        read_values(files, tensor, first, n, bytes, values);
        if (!all_finite(DType::f32, values.data(), n * size_of(DType::f32))) {
          throw Error(ErrorCode::invalid_argument,
                      {.where = tensor.file.string(),
                       .what = "'" + part.name + "' has values that are not finite, before any step",
                       .fix = "Take other weights: these were spoiled when they were written."});
        }
        if (in_nf4) {
          whole.insert(whole.end(), values.begin(), values.end());
        } else {
          store_parameter(ctx, r, i, start + first, values, bytes);
        }
      }
      if (in_nf4) store_nf4(ctx, r, whole, *in_nf4);
    }
  }
}

std::string weights_fingerprint(const TensorFiles& files) {
  std::string text;
  for (const auto& [name, tensor] : files.tensors()) {
    char some[64];
    const auto n = std::min<int64_t>(tensor.bytes, sizeof(some));
    files.read(tensor, (tensor.bytes - n) / 2, some, n);
    text += fmt::format("{} {} {} ", name, to_string(tensor.dtype), shape_string(tensor.sizes));
    text.append(some, static_cast<size_t>(n));
  }
  return fmt::format("{:016x}", text_checksum(text));
}

std::vector<TensorToStore> parts_to_store(const Context& ctx, const ParameterList& parameters,
                                          const std::vector<Tensor>& tensors, const Residents& r) {
  std::vector<TensorToStore> list;
  for (size_t i = 0; i < parameters.all.size(); ++i) {
    const Parameter& p = parameters.all[i];
    const Tensor& tensor = tensors[i];
    if (!tensor.present()) continue;
    for (const ParameterPart& part : p.parts) {
      const int64_t start = part.begin * columns_of(p) * size_of(tensor.dtype);
      list.push_back({.name = part.name,
                      .dtype = tensor.dtype,
                      .sizes = part_sizes(p, part),
                      .produce = [ctx, tensor, start, &r](int64_t offset, void* out, int64_t bytes) {
                        r.read(ctx, out, tensor, start + offset, bytes);
                      }});
    }
  }
  return list;
}

std::vector<TensorToStore> only_finite(std::vector<TensorToStore> tensors) {
  for (TensorToStore& tensor : tensors) {
    tensor.produce = [name = tensor.name, dtype = tensor.dtype, produce = std::move(tensor.produce)](
                         int64_t offset, void* out, int64_t bytes) {
      produce(offset, out, bytes);
      if (all_finite(dtype, out, bytes)) return;
      throw Error(ErrorCode::invalid_argument,
                  {.where = "'" + name + "'",
                   .what = "a value is not finite any more, so this state of the run is not saved",
                   .fix = "Begin again, or resume from an earlier step, with a lower --lr, a longer --warmup or harder "
                          "clipping, and with an --eps above 0."});
    };
  }
  return tensors;
}

std::vector<TensorToStore> states_to_store(const Context& ctx, const ParameterList& parameters, const Residents& r) {
  std::vector<TensorToStore> list;
  for (const NamedState& state : named_states(parameters, r)) {
    const Tensor& t = state.tensor;
    list.push_back(
        {.name = state.name,
         .dtype = t.dtype,
         .sizes = {t.sizes, t.sizes + t.rank},
         .produce = [ctx, t, &r](int64_t offset, void* out, int64_t bytes) { r.read(ctx, out, t, offset, bytes); }});
  }
  return list;
}

void check_states(const ParameterList& parameters, const TensorFiles& files, const Residents& r) {
  const std::vector<NamedState> states = named_states(parameters, r);
  if (states.size() != files.tensors().size()) {
    throw Error(ErrorCode::invalid_argument, {.where = "optimizer states",
                                              .what = "the number of tensors is not this run's",
                                              .expected = std::to_string(states.size()),
                                              .got = std::to_string(files.tensors().size()),
                                              .fix = "Resume with the --optimizer that the run began with."});
  }
  for (const NamedState& state : states) {
    const StoredTensor* stored = files.find(state.name);
    const Tensor& t = state.tensor;
    if (stored == nullptr || stored->dtype != t.dtype ||
        stored->sizes != std::vector<int64_t>(t.sizes, t.sizes + t.rank)) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "optimizer states", .what = "'" + state.name + "' is missing or of another type or shape"});
    }
  }
}

void load_states(const Context& ctx, const ParameterList& parameters, const TensorFiles& files, Residents& r) {
  std::vector<std::byte> bytes;
  for (const NamedState& state : named_states(parameters, r)) {
    const StoredTensor& stored = *files.find(state.name);
    for (int64_t offset = 0; offset < stored.bytes; offset += kPiece) {
      const int64_t n = std::min(kPiece, stored.bytes - offset);
      bytes.resize(static_cast<size_t>(n));
      files.read(stored, offset, bytes.data(), n);
      r.write(ctx, state.tensor, offset, bytes.data(), n);
    }
  }
}

void clear_states(const Context& ctx, Residents& r) {
  for (const TrainedParameter& trained : r.parameters) {
    for (const TrainedParameter::State& state : trained.states) {
      if (!state.spec.copies_weight) r.clear(ctx, state.tensor);
    }
  }
}

}  // namespace tigon
