#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tigon {

// Counts the words of texts, as GPT-2 cuts them. One per thread; sums do not depend on who counted what.
class WordCounter {
 public:
  WordCounter();
  ~WordCounter();
  WordCounter(WordCounter&&) noexcept;
  WordCounter& operator=(WordCounter&&) noexcept;

  void add(std::string_view text);
  void add(const WordCounter& other);

 private:
  friend std::string train_byte_bpe(const WordCounter& words, int64_t vocab);
  struct State;
  std::unique_ptr<State> state_;
};

// A tokenizer.json of `vocab` tokens, or fewer where the words give no more: byte pair encoding of bytes, learnt from
// the counts. Again and again the most frequent pair of neighbours becomes a token, among equals the one with the
// smaller ids: the same file that PyPI's `tokenizers` makes of these words. It has <|endoftext|>, <|im_start|> and
// <|im_end|>, so that chats in ChatML have their tokens too.
std::string train_byte_bpe(const WordCounter& words, int64_t vocab);

inline constexpr const char* kTrainedEnd = "<|endoftext|>";

}  // namespace tigon
