#include "speaker.hpp"

#include <algorithm>

#include "tigon/core/error.hpp"
#include "tigon/generate/continuation.hpp"

namespace tigon::app {

Speaker::Speaker(const ModelConfig& model, const std::filesystem::path& folder, const std::string& prompt,
                 int64_t tokens)
    : words_(model, folder), prompt_(words_.encode(prompt.empty() ? "\n" : prompt)) {
  const int64_t room = model.longest_sequence() - static_cast<int64_t>(prompt_.size());
  if (prompt_.empty() || room < 1) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "--prompt",
                 .what = prompt_.empty() ? "there is nothing to go on with" : "the model has no room behind it",
                 .expected = "1 to " + std::to_string(model.longest_sequence() - 1) + " tokens",
                 .got = std::to_string(prompt_.size())});
  }
  tokens_ = std::min(tokens, room);
  if (!folder.empty()) ends_ = end_tokens(folder);
}

int64_t Speaker::most_tokens() const { return static_cast<int64_t>(prompt_.size()) + tokens_; }

std::string Speaker::speak(Trainer& trainer) const {
  const SamplingOptions options{.temperature = 0.8, .top_k = 40, .seed = trainer.config().seed};
  std::vector<int32_t> text = prompt_;
  for (int64_t place = 0; place < tokens_; ++place) {
    const int32_t next = sample_token(trainer.next_token(text), options, 0, place);
    if (std::find(ends_.begin(), ends_.end(), next) != ends_.end()) break;
    text.push_back(next);
  }
  return words_.decode(text);
}

}  // namespace tigon::app
