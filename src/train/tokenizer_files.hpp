#pragma once

#include <filesystem>

namespace tigon {

// What belongs to a model besides its weights and its config: its tokenizer, and how it generates. Once the weights are
// written.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tigon
