#pragma once

#include <filesystem>

namespace tigon {

// Writes a model of which adapters have become a part: W + scale·B·A, summed in f32 and rounded once to the type that W
// has in its file. `model`: a Hugging Face folder; `adapters`: PEFT's or ours; `output`: a folder that is neither.
// Reads and writes piece by piece.
void merge_adapters(const std::filesystem::path& model, const std::filesystem::path& adapters,
                    const std::filesystem::path& output);

}  // namespace tigon
