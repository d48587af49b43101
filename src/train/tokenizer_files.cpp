#include "train/tokenizer_files.hpp"

#include "tigon/core/error.hpp"

namespace tigon {

namespace fs = std::filesystem;

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  if (fs::equivalent(from, to, failed)) return;
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json"}) {
    if (!fs::exists(from / name, failed)) continue;
    fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, failed);
    if (failed) {
      throw Error(ErrorCode::io,
                  {.where = (to / name).string(),
                   .what = "the weights are written, but this file of the model cannot be copied: " + failed.message(),
                   .fix = "Copy it from " + from.string() + " yourself."});
    }
  }
}

}  // namespace tigon
