#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tigon/generate/generator.hpp"
#include "tigon/generate/sampling.hpp"

namespace tigon {

struct ContinueOptions {
  int64_t tokens = 200;  // at most so many for each prompt
  SamplingOptions sampling{};
  std::vector<int32_t> end_tokens{};  // what follows one of these is not wanted, nor is the token itself
};

// Continues each prompt, in the generator's batches, until its tokens are there, one of the end tokens comes, or
// `on_token(prompt, token)` says no. What is drawn for a prompt does not depend on those beside it.
void continue_prompts(Generator& generator, const std::vector<std::vector<int32_t>>& prompts,
                      const ContinueOptions& options, const std::function<bool(size_t, int32_t)>& on_token);

// The tokens at which a text ends, as generation_config.json of a model's folder says, else its config.json. Empty:
// neither does.
std::vector<int32_t> end_tokens(const std::filesystem::path& model_folder);

// {"prompt": …, "text": …} on one line. What is no UTF-8 is replaced.
std::string continuation_line(const std::string& prompt, const std::string& text);

}  // namespace tigon
