#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tigon {

struct TokenizerParts;

// What a Hugging Face tokenizer.json does, for byte pair encoding: of bytes (GPT-2, Llama 3, Qwen, SmolLM2) and of
// characters with bytes to fall back on (Llama 2, Mistral, Gemma). The same ids and texts as PyPI's `tokenizers`; what
// this does not know is refused by name. Truncation and padding, which such a file may ask for, are left to the caller.
// A value that is cheap to copy and may be used by many threads.
class Tokenizer {
 public:
  // A tokenizer.json, or a folder with one.
  static Tokenizer load(const std::filesystem::path& path);
  // `where` names the text in errors.
  static Tokenizer parse(std::string_view json, const std::string& where);

  // The ids of a text; with `special` those too that a text begins or ends with (<s>, say). Bytes that are no UTF-8
  // count as U+FFFD, one for each longest beginning of a character, as with Python's errors="replace". Use a
  // TextEncoder for many texts: it is faster.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  // The text of ids, valid UTF-8 always. Ids without a token are left out, with `skip_special` special tokens too.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // What encode() puts before and behind a text, with `special`.
  std::span<const int32_t> prefix() const noexcept;
  std::span<const int32_t> suffix() const noexcept;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  // One more than the largest id: what a model's vocabulary must have at least.
  int64_t vocab() const noexcept;

 private:
  friend class TextEncoder;
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const TokenizerParts> parts_;
};

// Encodes many texts, one after the other, and remembers words: 8 MiB, whatever the texts are. One per thread; the
// ids do not depend on what came before.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  // Appends the ids of a text of less than 2 GiB.
  void encode(std::string_view text, std::vector<int32_t>& ids, bool special = true);
  // The same without special tokens, and for each of some places in a text of valid UTF-8, ascending, the first of the
  // ids that is not of the text before it alone.
  std::vector<size_t> encode_with_marks(std::string_view text, std::span<const size_t> marks,
                                        std::vector<int32_t>& ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Decodes ids as they come. What push() and finish() return is, joined, what Tokenizer::decode makes of all of them; a
// character that is not whole yet is kept until it is.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(int32_t id);
  std::string finish();  // nothing may be pushed after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tigon
