#include "tigon/generate/continuation.hpp"

#include <algorithm>

#include "json/json.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

// Prompts [first, first + batch) of those that are there.
void continue_batch(Generator& generator, const std::vector<std::vector<int32_t>>& prompts, size_t first,
                    const ContinueOptions& options, const std::function<bool(size_t, int32_t)>& on_token) {
  const auto batch = static_cast<size_t>(generator.batch()), vocab = static_cast<size_t>(generator.model().vocab);
  const size_t there = std::min(batch, prompts.size() - first);
  std::vector<std::vector<int32_t>> read(prompts.begin() + static_cast<std::ptrdiff_t>(first),
                                         prompts.begin() + static_cast<std::ptrdiff_t>(first + there));
  read.resize(batch, {0});  // nobody hears of these
  std::vector<char> wanted(there, 1);
  std::vector<int32_t> next(batch, 0);
  auto logits = generator.read(read);
  for (int64_t place = 0; place < options.tokens; ++place) {
    for (size_t i = 0; i < there; ++i) {
      if (!wanted[i]) continue;
      const auto prompt = static_cast<int64_t>(first + i);
      next[i] = sample_token(logits.subspan(i * vocab, vocab), options.sampling, prompt, place);
      const auto& ends = options.end_tokens;
      wanted[i] = std::find(ends.begin(), ends.end(), next[i]) == ends.end() && on_token(first + i, next[i]);
    }
    const bool goes_on = std::find(wanted.begin(), wanted.end(), 1) != wanted.end();
    if (!goes_on || place + 1 == options.tokens) return;
    logits = generator.add(next);
  }
}

}  // namespace

void continue_prompts(Generator& generator, const std::vector<std::vector<int32_t>>& prompts,
                      const ContinueOptions& options, const std::function<bool(size_t, int32_t)>& on_token) {
  check_sampling(options.sampling);
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(generator.batch()))
    continue_batch(generator, prompts, first, options, on_token);
}

std::vector<int32_t> end_tokens(const std::filesystem::path& model_folder) {
  constexpr int64_t kMost = int64_t{1} << 24;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path file = model_folder / name;
    if (!std::filesystem::exists(file)) continue;
    const Json json = Json::parse(read_text_file(file, kMost), file.string());
    const Json* ends = json.find("eos_token_id");
    if (ends == nullptr || ends->is_null()) continue;
    const std::string where = file.string() + ": eos_token_id";
    std::vector<int32_t> tokens;
    for (const Json& token : ends->is_array() ? ends->array(where) : Json::Array{*ends})
      tokens.push_back(static_cast<int32_t>(token.integer(where)));
    return tokens;
  }
  return {};
}

std::string continuation_line(const std::string& prompt, const std::string& text) {
  Json json;
  json.set("prompt", prompt);
  json.set("text", text);
  return json.dump(false);
}

}  // namespace tigon
