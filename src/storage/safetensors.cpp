// The format: 8 bytes with the header's length, the header as JSON, then the tensors' bytes without gaps.
#include "tigon/storage/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/tensor.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestHeader = 100'000'000;  // the reference implementation's limit
constexpr int64_t kPiece = int64_t{4} << 20;
constexpr int kMostDimensions = 8;

struct TypeName {
  const char* name;
  DType dtype;
};
constexpr TypeName kTypes[] = {{"F32", DType::f32}, {"BF16", DType::bf16}, {"F16", DType::f16}, {"F64", DType::f64},
                               {"I32", DType::i32}, {"I64", DType::i64},   {"U8", DType::u8}};

[[noreturn]] void bad(const std::string& where, std::string what, std::string expected = {}, std::string got = {}) {
  throw Error(ErrorCode::invalid_argument,
              {.where = where, .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

DType type_of(const std::string& name, const std::string& where) {
  std::string known;
  for (const TypeName& type : kTypes) {
    if (name == type.name) return type.dtype;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  bad(where, "this type is not supported", known, "'" + name + "'");
}

StoredTensor parse_tensor(const Json& entry, const std::string& where, int64_t data_start, int64_t data_bytes) {
  const auto member = [&](const char* key) -> const Json& {
    const Json* value = entry.find(key);
    if (value == nullptr) bad(where, std::string("'") + key + "' is missing");
    return *value;
  };
  StoredTensor tensor;
  tensor.dtype = type_of(member("dtype").string(where + ": dtype"), where + ": dtype");
  for (const Json& size : member("shape").array(where + ": shape")) {
    tensor.sizes.push_back(size.integer(where + ": shape"));
    if (tensor.sizes.size() > kMostDimensions) bad(where, "the shape has too many dimensions");
  }
  tensor.bytes = checked_bytes(where.c_str(), tensor.dtype, tensor.sizes);
  const Json::Array& offsets = member("data_offsets").array(where + ": data_offsets");
  if (offsets.size() != 2) bad(where, "'data_offsets' is not a pair");
  const int64_t begin = offsets[0].integer(where + ": data_offsets"),
                end = offsets[1].integer(where + ": data_offsets");
  if (begin < 0 || end < begin || end > data_bytes) {
    bad(where, "the data lies outside the file", fmt::format("0 <= begin <= end <= {}", data_bytes),
        fmt::format("[{}, {}]", begin, end));
  }
  if (end - begin != tensor.bytes) {
    bad(where, "the data does not fit type and shape", fmt::format("{} bytes", tensor.bytes),
        std::to_string(end - begin));
  }
  tensor.offset = data_start + begin;
  return tensor;
}

}  // namespace

void TensorFiles::add_file(const fs::path& path) {
  const std::string where = path.string();
  std::ifstream file = open_to_read(path);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < 8) bad(where, "the file is too short to be a safetensors file", "at least 8 bytes", std::to_string(size));
  file.seekg(0);
  unsigned char length_bytes[8];
  file.read(reinterpret_cast<char*>(length_bytes), 8);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | length_bytes[i];
  if (length > static_cast<uint64_t>(std::min(kLargestHeader, size - 8))) {
    bad(where, "the header's length is impossible", fmt::format("at most {} bytes", std::min(kLargestHeader, size - 8)),
        std::to_string(length));
  }
  std::string header(static_cast<size_t>(length), '\0');
  file.read(header.data(), static_cast<std::streamsize>(length));
  if (!file) throw Error(ErrorCode::io, {.where = where, .what = "the header cannot be read"});

  const Json json = Json::parse(header, where + ": header");
  const int64_t data_start = 8 + static_cast<int64_t>(length), data_bytes = size - data_start;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, entry] : json.object(where + ": header")) {
    const std::string at = fmt::format("{}: '{}'", where, name);
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.object(at)) metadata_[key] = value.string(at);
      continue;
    }
    StoredTensor tensor = parse_tensor(entry, at, data_start, data_bytes);
    tensor.file = path;
    ranges.emplace_back(tensor.offset, tensor.offset + tensor.bytes);
    if (!tensors_.emplace(name, std::move(tensor)).second) bad(at, "the tensor stands in two files");
  }
  // Tensors must cover the data exactly: an overlap or a gap means that header and data do not belong together.
  std::sort(ranges.begin(), ranges.end());
  int64_t at = data_start;
  for (const auto& [begin, end] : ranges) {
    if (begin != at) bad(where, begin < at ? "tensors overlap" : "there is a gap between tensors");
    at = end;
  }
  if (at != size)
    bad(where, "the data does not end where the tensors do", std::to_string(at) + " bytes", std::to_string(size));
}

void TensorFiles::add_index(const fs::path& index) {
  const std::string where = index.string();
  const Json json = Json::parse(read_text_file(index, kLargestHeader), where);
  const Json* map = json.find("weight_map");
  if (map == nullptr) bad(where, "'weight_map' is missing");
  std::set<std::string> files;
  std::map<std::string, std::string> expected;
  for (const auto& [name, value] : map->object(where)) {
    const std::string& file = value.string(fmt::format("{}: '{}'", where, name));
    // A name from outside must not lead out of the folder.
    if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
        file.find('\0') != std::string::npos) {
      bad(where, "'" + name + "' is not in a file of this folder", "a plain file name", "'" + file + "'");
    }
    files.insert(file);
    expected[name] = file;
  }
  for (const std::string& file : files) add_file(index.parent_path() / file);
  for (const auto& [name, file] : expected) {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr || tensor->file.filename() != file) bad(where, fmt::format("'{}' is not in {}", name, file));
  }
}

TensorFiles TensorFiles::open(const fs::path& path) {
  TensorFiles files;
  if (!fs::is_directory(path)) {
    files.add_file(path);
  } else if (fs::exists(path / "model.safetensors")) {
    files.add_file(path / "model.safetensors");
  } else if (fs::exists(path / "model.safetensors.index.json")) {
    files.add_index(path / "model.safetensors.index.json");
  } else {
    throw Error(ErrorCode::io, {.where = path.string(),
                                .what = "there are no weights in this folder",
                                .expected = "model.safetensors or model.safetensors.index.json"});
  }
  return files;
}

const StoredTensor* TensorFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void TensorFiles::read(const StoredTensor& tensor, int64_t offset, void* out, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > tensor.bytes - bytes) {
    throw Error(ErrorCode::internal, {.where = tensor.file.string(), .what = "a read outside a tensor"});
  }
  std::ifstream file(tensor.file, std::ios::binary);
  file.seekg(tensor.offset + offset);
  file.read(static_cast<char*>(out), bytes);
  if (!file) {
    throw Error(ErrorCode::io, {.where = tensor.file.string(), .what = "the file cannot be read, or became shorter"});
  }
}

uint64_t write_safetensors(const fs::path& path, const std::vector<TensorToStore>& tensors,
                           const std::map<std::string, std::string>& metadata) {
  Json header;
  if (!metadata.empty()) {
    Json entries;
    for (const auto& [key, value] : metadata) entries.set(key, value);
    header.set("__metadata__", entries);
  } else {
    header = Json(Json::Object());
  }
  int64_t at = 0;
  Json::Object members = header.object("");
  std::set<std::string> names = {"__metadata__"};
  for (const TensorToStore& tensor : tensors) {
    // What open() would refuse is not written either.
    if (!is_known(tensor.dtype) || !tensor.produce || !names.insert(tensor.name).second) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = path.string(),
                   .what = "tensor '" + tensor.name + "' cannot be written",
                   .expected = "a known type, a function that fills it, and a name that no other one has"});
    }
    const int64_t bytes = checked_bytes("write_safetensors", tensor.dtype, tensor.sizes);
    Json entry;
    for (const TypeName& type : kTypes) {
      if (type.dtype == tensor.dtype) entry.set("dtype", type.name);
    }
    entry.set("shape", Json::Array(tensor.sizes.begin(), tensor.sizes.end()));
    entry.set("data_offsets", Json::Array{at, at + bytes});
    members.emplace_back(tensor.name, std::move(entry));
    at += bytes;
  }
  std::string text = Json(std::move(members)).dump(false);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins at a multiple of 8

  FileWriter file(path);
  unsigned char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  file.write(length, 8);
  file.write(text);
  std::vector<char> piece;
  for (const TensorToStore& tensor : tensors) {
    const int64_t bytes = checked_bytes("write_safetensors", tensor.dtype, tensor.sizes);
    for (int64_t offset = 0; offset < bytes; offset += kPiece) {
      const int64_t n = std::min(kPiece, bytes - offset);
      piece.resize(static_cast<size_t>(n));
      tensor.produce(offset, piece.data(), n);
      file.write(piece.data(), n);
    }
  }
  file.commit();
  return file.checksum();
}

}  // namespace tigon
