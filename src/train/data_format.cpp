#include "train/data_format.hpp"

#include <fmt/format.h>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

struct Format {
  const char* name;
  std::string_view magic;  // how the file begins; empty: there is none
  const char* extensions[4] = {};
  bool text = false;
};

constexpr Format kFormats[] = {{.name = "gzip", .magic = "\x1f\x8b", .extensions = {".gz", ".tgz"}},
                               {.name = "Zstandard", .magic = "\x28\xb5\x2f\xfd", .extensions = {".zst"}},
                               {.name = "xz",
                                .magic = "\xfd"
                                         "7zXZ",
                                .extensions = {".xz"}},
                               {.name = "bzip2", .magic = "BZh", .extensions = {".bz2"}},
                               {.name = "ZIP", .magic = "PK\x03\x04", .extensions = {".zip", ".npz", ".pt"}},
                               {.name = "NumPy", .magic = "\x93NUMPY", .extensions = {".npy"}},
                               {.name = "Parquet", .magic = "PAR1", .extensions = {".parquet"}},
                               {.name = "Arrow", .magic = "ARROW1", .extensions = {".arrow", ".feather"}},
                               {.name = "JSON lines", .magic = {}, .extensions = {".jsonl", ".ndjson"}, .text = true},
                               {.name = "JSON", .magic = {}, .extensions = {".json"}, .text = true},
                               {.name = "CSV", .magic = {}, .extensions = {".csv", ".tsv"}, .text = true}};
constexpr const char* kText = "plain text";

}  // namespace

bool is_text(const std::string& format) {
  for (const Format& known : kFormats) {
    if (format == known.name) return known.text;
  }
  return !format.empty();
}

std::string format_of_bytes(const std::filesystem::path& path, std::string_view first_bytes) {
  for (const Format& format : kFormats) {
    if (!format.magic.empty() && first_bytes.starts_with(format.magic)) return format.name;
  }
  const std::string extension = path.extension().string();
  for (const Format& format : kFormats) {
    for (const char* known : format.extensions) {
      if (known != nullptr && extension == known) return format.name;
    }
  }
  return kText;
}

void refuse_bytes(const std::filesystem::path& path, const std::string& format, int64_t vocab) {
  constexpr int64_t kBytes = 256;
  if (format.empty() || (is_text(format) && vocab == kBytes)) return;
  throw Error(
      ErrorCode::invalid_argument,
      {.where = path.string(),
       .what = vocab == kBytes ? "the bytes of this file are not text"
                               : "this is not a token file, and this model's tokens are not bytes",
       .expected =
           vocab == kBytes ? "text, or a token file" : fmt::format("a token file for a vocabulary of {}", vocab),
       .got = format,
       .fix = "Name the folder with its tokenizer.json by --tokenizer, for text and JSON lines; tigon help data "
              "says more. To train on the bytes as they are, add --bytes."});
}

}  // namespace tigon
