#include "tigon/text/tokenizer.hpp"

#include <algorithm>

#include "json/json.hpp"
#include "text/tokenizer_parts.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace fs = std::filesystem;

TokenizerParts::TokenizerParts(const Field& file)
    : normalizer(file["normalizer"]),
      pre_tokenizer(file["pre_tokenizer"]),
      model(file["model"], pre_tokenizer.byte_level()),
      added(file["added_tokens"], model, normalizer),
      post_processor(file["post_processor"]),
      decoder(file["decoder"]) {
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
}

const std::string* TokenizerParts::id_to_token(int32_t id) const {
  const std::string* token = added.id_to_token(id);
  return token != nullptr ? token : model.id_to_token(id);
}

Tokenizer Tokenizer::load(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / "tokenizer.json" : path;
  constexpr int64_t kMost = int64_t{256} << 20;  // Gemma's has 33 MB
  return parse(read_text_file(file, kMost), file.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  const Json file = Json::parse(json, where);
  return Tokenizer(std::make_shared<const TokenizerParts>(Field{file, where}));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<int32_t> ids;
  TextEncoder(*this).encode(text, ids, special);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text += stream.finish();
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const std::optional<int32_t> added = parts_->added.token_to_id(token);
  return added ? added : parts_->model.token_to_id(token);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  const std::string* token = parts_->id_to_token(id);
  return token != nullptr ? std::optional(*token) : std::nullopt;
}

std::span<const int32_t> Tokenizer::prefix() const noexcept { return parts_->post_processor.before; }

std::span<const int32_t> Tokenizer::suffix() const noexcept { return parts_->post_processor.after; }

bool Tokenizer::is_special(int32_t id) const { return parts_->added.is_special(id); }

int64_t Tokenizer::vocab() const noexcept { return std::max(parts_->model.end(), parts_->added.end()); }

struct StreamDecoder::State {
  std::shared_ptr<const TokenizerParts> parts;
  bool skip_special;
  Decoder::Stream stream{parts->decoder};
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{.parts = tokenizer.parts_, .skip_special = skip_special}) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  const std::string* token = state_->parts->id_to_token(id);
  if (token == nullptr || (state_->skip_special && state_->parts->added.is_special(id))) return {};
  state_->stream.push(*token);
  return state_->stream.take();
}

std::string StreamDecoder::finish() {
  state_->stream.finish();
  return state_->stream.take();
}

}  // namespace tigon
