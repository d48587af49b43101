#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tigon/core/dtype.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

// A tensor in a safetensors file.
struct StoredTensor {
  std::filesystem::path file;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes{};
  int64_t offset = 0;  // of its first byte in the file
  int64_t bytes = 0;
};

// The tensors of one safetensors file, or of a Hugging Face folder: model.safetensors, or the files that
// model.safetensors.index.json lists. Opening reads and checks the headers alone: sizes, types, offsets inside the
// file, no overlaps, no gaps that a file of this format cannot have. Files come from outside; every fault is an Error
// that names the file and the tensor.
class TensorFiles {
 public:
  static TensorFiles open(const std::filesystem::path& file_or_folder);

  const std::map<std::string, StoredTensor>& tensors() const noexcept { return tensors_; }
  const StoredTensor* find(const std::string& name) const;
  // Bytes [offset, offset + bytes) of a tensor.
  void read(const StoredTensor& tensor, int64_t offset, void* out, int64_t bytes) const;
  // The file's "__metadata__".
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

 private:
  void add_file(const std::filesystem::path& path);
  void add_index(const std::filesystem::path& index);

  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A tensor to be written. `produce(offset, out, bytes)` fills a piece of it, called in order of offset.
struct TensorToStore {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> sizes{};
  std::function<void(int64_t offset, void* out, int64_t bytes)> produce;
};

// Writes a safetensors file, whole or not at all, in pieces of a few MiB. Returns the file's checksum.
uint64_t write_safetensors(const std::filesystem::path& path, const std::vector<TensorToStore>& tensors,
                           const std::map<std::string, std::string>& metadata = {});

}  // namespace tigon
