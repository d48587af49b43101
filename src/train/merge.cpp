#include "tigon/train/merge.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "tigon/core/error.hpp"
#include "tigon/model/parameters.hpp"
#include "tigon/storage/safetensors.hpp"
#include "train/room.hpp"
#include "train/tokenizer_files.hpp"
#include "train/weights_io.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostConfig = int64_t{1} << 24;

std::vector<float> all_values(const TensorFiles& files, const std::string& name) {
  const StoredTensor& tensor = *files.find(name);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
  files.read(tensor, 0, bytes.data(), tensor.bytes);
  std::vector<float> values(bytes.size() / static_cast<size_t>(size_of(tensor.dtype)));
  widen(tensor.dtype, bytes, values);
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
    throw Error(ErrorCode::invalid_argument, {.where = tensor.file.string(),
                                              .what = "'" + name + "' has values that are not finite",
                                              .fix = "Take other adapters: these were spoiled in training."});
  }
  return values;
}

// What an adapter adds to a matrix of the files.
class Delta {
 public:
  Delta(const TensorFiles& files, const std::string& module, int64_t rank, double scale)
      : a_(all_values(files, module + ".lora_A.weight")),
        b_(all_values(files, module + ".lora_B.weight")),
        rank_(rank),
        columns_(static_cast<int64_t>(a_.size()) / rank),
        scale_(static_cast<float>(scale)) {}

  // To the elements of the matrix from `first` on.
  void add_to(std::vector<float>& values, int64_t first) {
    const auto n = static_cast<int64_t>(values.size());
    for (int64_t done = 0; done < n;) {
      const int64_t row = (first + done) / columns_, column = (first + done) % columns_;
      const int64_t end = std::min(columns_, column + n - done);
      row_.assign(static_cast<size_t>(end - column), 0.0f);
      for (int64_t k = 0; k < rank_; ++k) {
        const float b = b_[static_cast<size_t>(row * rank_ + k)];
        const float* a = a_.data() + k * columns_ + column;
        for (size_t c = 0; c < row_.size(); ++c) row_[c] += b * a[c];
      }
      for (size_t c = 0; c < row_.size(); ++c) values[static_cast<size_t>(done) + c] += scale_ * row_[c];
      done += end - column;
    }
  }

 private:
  std::vector<float> a_, b_, row_;
  int64_t rank_, columns_;
  float scale_;
};

// The matrices that have an adapter, by the names in the model's files, with the names in the adapter's.
std::map<std::string, std::pair<std::string, LoraModule>> adapted(const ParameterList& parameters) {
  constexpr std::string_view kPrefix = "base_model.model.", kSuffix = ".lora_A.weight";
  std::map<std::string, std::pair<std::string, LoraModule>> names;
  for (const Parameter& p : parameters.all) {
    for (const ParameterPart& part : p.parts) {
      if (!p.adapter || !part.name.ends_with(kSuffix)) continue;
      const std::string module = part.name.substr(0, part.name.size() - kSuffix.size());
      for (int m = 0; m < kLoraModuleCount; ++m) {
        const auto known = static_cast<LoraModule>(m);
        if (module.ends_with(to_string(known))) names[module.substr(kPrefix.size()) + ".weight"] = {module, known};
      }
    }
  }
  return names;
}

}  // namespace

void merge_adapters(const fs::path& model, const fs::path& adapters, const fs::path& output) {
  std::error_code none;
  for (const fs::path& input : {model, adapters}) {
    if (!fs::equivalent(input, output, none)) continue;
    throw Error(ErrorCode::invalid_argument, {.where = output.string(),
                                              .what = "the merged model would take the place of what it is made of",
                                              .fix = "Choose another folder."});
  }
  const std::string config = read_text_file(model / "config.json", kMostConfig);
  const ModelConfig shape = model_config_from_json(config, (model / "config.json").string());
  const LoraConfig lora =
      lora_from_json(read_text_file(adapters / kAdapterConfig, kMostConfig), (adapters / kAdapterConfig).string());
  const ParameterList parameters(shape, lora);
  const TensorFiles files = TensorFiles::open(model), theirs = TensorFiles::open(adapters / kAdapterWeights);
  check_weights(parameters, shape.tied_embeddings, files, FilesOf::model);
  check_weights(parameters, false, theirs, FilesOf::adapters);

  int64_t bytes = 0;
  for (const auto& [name, tensor] : files.tensors()) bytes += tensor.bytes;
  make_folder(output);
  check_room({{.folder = output, .count = 1, .bytes = bytes, .what = "the merged model"}});

  const auto adapted_names = adapted(parameters);
  std::vector<TensorToStore> list;
  auto current = std::make_shared<std::pair<std::string, std::unique_ptr<Delta>>>();  // one at a time is in memory
  for (const auto& [name, stored] : files.tensors()) {
    TensorToStore item{.name = name, .dtype = stored.dtype, .sizes = stored.sizes, .produce = {}};
    const auto found = adapted_names.find(name);
    if (found == adapted_names.end()) {
      item.produce = [&files, &stored = stored](int64_t offset, void* out, int64_t n) {
        files.read(stored, offset, out, n);
      };
    } else {
      const auto& [module, which] = found->second;
      item.produce = [&, current, rank = lora.rank_of(which), scale = lora.scale(which)](int64_t offset, void* out,
                                                                                         int64_t n) {
        if (current->first != module) *current = {module, std::make_unique<Delta>(theirs, module, rank, scale)};
        std::vector<std::byte> raw(static_cast<size_t>(n));
        files.read(stored, offset, raw.data(), n);
        std::vector<float> values(raw.size() / static_cast<size_t>(size_of(stored.dtype)));
        widen(stored.dtype, raw, values);
        current->second->add_to(values, offset / size_of(stored.dtype));
        narrow(stored.dtype, values, raw);
        std::memcpy(out, raw.data(), raw.size());
      };
    }
    list.push_back(std::move(item));
  }
  (void)write_safetensors(output / "model.safetensors", only_finite(std::move(list)), {{"format", "pt"}});
  write_text_file(output / "config.json", config);
  copy_tokenizer(model, output);
}

}  // namespace tigon
