#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tigon {

// Tokens to train on. A token file of version 1 is, little-endian: the 8 bytes "TIGONTOK", u32 version (1), u32 bytes
// per token (2 or 4), u64 number of tokens, u64 vocabulary size, then the tokens. One of version 2 knows its documents
// and which tokens are to be learnt, and can be written without knowing how many there will be: the same 32 bytes with
// version 2 and a number of 0; the tokens; where there is a mask, a bit per token in bytes, the lowest first: whether
// it counts as a label; a u64 per document, the token that it begins with; then u64 number of tokens, u64 of documents,
// u64 whether there is a mask, and the 8 bytes "TIGONEND". Any other file is text: one token per byte.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  int64_t tokens() const noexcept { return tokens_; }
  int64_t vocab() const noexcept { return vocab_; }
  // How many documents the tokens are of; 0 where the file does not know.
  int64_t documents() const noexcept { return documents_; }
  // The tokens that `count` documents begin with, from the `first` on: ascending, the first of the file 0.
  std::vector<int64_t> document_starts(int64_t first, int64_t count) const;
  // Those of the tokens [first, first + count) that a document begins with.
  std::vector<int64_t> starts_among(int64_t first, int64_t count) const;
  bool has_mask() const noexcept { return mask_ > 0; }
  // Whether each of the tokens [first, first + count) is to be learnt; all are where there is no mask.
  std::vector<bool> read_mask(int64_t first, int64_t count) const;
  // What a file that is no token file is, by its first bytes and its name: "plain text", "gzip", …; of a token file
  // empty.
  const std::string& format() const noexcept { return format_; }
  bool is_text() const noexcept;  // of any kind, JSON lines too
  // Tokens [first, first + count), each checked against the vocabulary.
  void read(int64_t first, int64_t count, int32_t* out) const;
  // Reads tokens [first, last), so that one outside the vocabulary is an Error now and not late in a run. More than
  // 1 GiB would take too long: nothing is checked then.
  void check(int64_t first, int64_t last) const;

 private:
  void read_end(int64_t size);
  void check_range_of_tokens(int64_t first, int64_t count) const;
  std::vector<unsigned char> read_bytes(int64_t at, int64_t bytes) const;

  std::filesystem::path path_;
  mutable std::ifstream file_;
  int64_t start_ = 0;  // of the first token in the file
  int64_t mask_ = 0;   // of the mask; 0: there is none
  int64_t document_list_ = 0, documents_ = 0;
  int64_t width_ = 1;
  int64_t tokens_ = 0;
  int64_t vocab_ = 256;
  std::string format_;
};

// Micro-batches of [batch, seq] with the next token as the label.
struct TokenBatch {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
  int64_t counted = 0;  // labels that are not the ignore index: what a step's mean is over
  // Where documents are apart: the place in its row where each token's document begins.
  std::vector<int32_t> starts{};
};

// Samples in an order that is a function of (seed, sample number) alone, so that a run can go on anywhere. The file is
// cut into windows of seq + 1 tokens that overlap by one; each epoch takes all of them in an order of its own.
class Sampler {
 public:
  struct Options {
    int64_t seq = 0;
    int64_t vocab = 0;  // the model's: tokens must be below
    uint64_t seed = 1;
    bool shuffle = true;
    int64_t first_token = 0, last_token = -1;  // the part of the file; -1: to its end
    int64_t ignored_token = -1;                // labels equal to this one do not count; negative: none
    int64_t ignore_index = -100;
    // Documents of a row do not see each other, and the first token of one is not foretold from what was before.
    bool documents_apart = false;
    int64_t document_end = -1;  // the token that ends one; negative: the file knows its documents
    bool bytes = false;         // the bytes of any file are tokens; else only those of text, for a vocabulary of 256
  };

  // Without a path: random tokens.
  Sampler(const std::filesystem::path& path, const Options& options);

  // Windows in an epoch; 0 where there is no end.
  int64_t windows() const noexcept { return windows_; }
  // "plain text, 1.2 M tokens", "random tokens".
  std::string description() const;
  // Of the beginnings of windows all over the data: tells one file from another, without reading all of a large one.
  std::string fingerprint() const;
  // Whether all of its tokens are inside the vocabulary, as TokenFile::check does it.
  void check_tokens() const;
  // Error where no label counts: there is nothing to learn from such data.
  void check_labels() const;
  // Adds samples [first, first + count) of the endless sequence of epochs to the batch.
  void fill(int64_t first, int64_t count, TokenBatch& batch);

 private:
  int64_t window_of(int64_t sample);
  // The window's tokens but the first that begin a document, by their places in it.
  std::vector<char> beginnings(int64_t place, const std::vector<int32_t>& window) const;

  Options options_;
  std::unique_ptr<TokenFile> file_;
  int64_t windows_ = 0;
  int64_t epoch_ = -1;
  std::vector<uint32_t> order_;
};

// Writes a token file of version 2, a document after the other. It appears whole, by finish(). Until then its tokens
// are in FILE.part, and what has to wait for the last of them in FILE.documents; both are gone where nothing was
// marked.
class TokenFileWriter {
 public:
  // How far it was written, for another writer to go on from there.
  struct Mark {
    int64_t tokens = 0, learnt = 0, list_bytes = 0;
  };

  TokenFileWriter(const std::filesystem::path& path, int64_t vocab);
  TokenFileWriter(const std::filesystem::path& path, int64_t vocab, const Mark& from);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  // A document, not empty, or more of the last one. `learnt`, as long as the tokens: which of them count as labels.
  // Where none was ever left out, no mask is written.
  void add(std::span<const int32_t> tokens, const std::vector<bool>& learnt, bool begins = true);
  // Of all that was added so far, which is on the disk then and stays there.
  Mark mark();
  void finish();
  // Leaves nothing, whatever was marked.
  void discard() noexcept;
  int64_t tokens() const noexcept;
  int64_t learnt() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes a token file of version 1. Throws Error, before anything is written, where a token is outside the vocabulary.
void write_token_file(const std::filesystem::path& path, const std::vector<int32_t>& tokens, int64_t vocab);

}  // namespace tigon
