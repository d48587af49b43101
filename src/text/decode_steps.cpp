#include <algorithm>
#include <optional>
#include <utility>

#include "text/byte_level.hpp"
#include "text/decoder.hpp"
#include "text/utf8.hpp"

namespace tigon {

namespace {

// For steps that look at a token as a whole.
class WholeTokens : public DecodeStep {
 public:
  void part(std::string_view text) final { token_.append(text); }
  void end_token() final {
    token(token_);
    token_.clear();
  }

 private:
  virtual void token(const std::string& text) = 0;

  std::string token_;
};

// Characters back into bytes, and all of them into one text. A character whose bytes are not all there waits.
class ByteLevelDecoding final : public WholeTokens {
 public:
  void finish() override {
    next().part(repaired_utf8(bytes_));
    next().end_token();
    next().finish();
  }

 private:
  void token(const std::string& text) override {
    bytes_.append(from_byte_characters(text).value_or(text));
    size_t whole = 0;
    while (whole < bytes_.size()) {
      whole += valid_utf8(std::string_view(bytes_).substr(whole));
      if (whole == bytes_.size()) break;
      const Utf8Step step = utf8_step(bytes_, whole);
      if (step.kind == Utf8Step::Kind::cut) break;
      whole += step.length;
    }
    next().part(repaired_utf8(std::string_view(bytes_).substr(0, whole)));
    bytes_.erase(0, whole);
  }

  std::string bytes_;
};

// The byte of <0x0A>.
std::optional<char> byte_of(std::string_view token) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto digit = [&](char c) { return kHex.find(static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c)); };
  const size_t high = digit(token[3]), low = digit(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

// A row of such bytes is the text that they are, or U+FFFD each where they are none: known when the row has ended.
class ByteFallbackDecoding final : public WholeTokens {
 public:
  void finish() override {
    end_row();
    next().finish();
  }

 private:
  void token(const std::string& text) override {
    if (const std::optional<char> byte = byte_of(text)) {
      row_.push_back(*byte);
      return;
    }
    end_row();
    emit(text);
  }
  void end_row() {
    if (row_.empty()) return;
    if (valid_utf8(row_) == row_.size()) {
      emit(row_);
    } else {
      for (size_t i = 0; i < row_.size(); ++i) emit(kReplacement);
    }
    row_.clear();
  }

  std::string row_;
};

class FuseDecoding final : public DecodeStep {
 public:
  void part(std::string_view text) override { next().part(text); }
  void end_token() override {}
  void finish() override {
    next().end_token();
    next().finish();
  }
};

class JoinDecoding final : public DecodeStep {
 public:
  void part(std::string_view text) override {
    if (std::exchange(ended_, false)) next().part(" ");
    next().part(text);
  }
  void end_token() override {
    if (ended_) next().part(" ");  // an empty token
    ended_ = true;
  }

 private:
  bool ended_ = false;  // a token, and no other has begun
};

// Up to so many of a character from both ends of a token.
class StripDecoding final : public DecodeStep {
 public:
  StripDecoding(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void part(std::string_view text) override {
    while (stripped_ < start_ && text.starts_with(content_)) {
      text.remove_prefix(content_.size());
      ++stripped_;
    }
    if (text.empty()) return;
    stripped_ = start_;
    held_.append(text);
    size_t keep = 0, end = held_.size();
    while (keep < stop_ && std::string_view(held_).substr(0, end).ends_with(content_)) {
      end -= content_.size();
      ++keep;
    }
    next().part(std::string_view(held_).substr(0, end));
    held_.erase(0, end);
  }
  void end_token() override {
    stripped_ = 0;
    held_.clear();
    next().end_token();
  }

 private:
  std::string content_, held_;
  size_t start_, stop_, stripped_ = 0;
};

// What may be the beginning of the pattern waits for what follows.
class ReplaceDecoding final : public DecodeStep {
 public:
  ReplaceDecoding(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void part(std::string_view text) override {
    held_.append(text);
    const std::string_view held = held_;
    size_t done = 0;
    for (size_t at = held.find(pattern_); at != std::string_view::npos; at = held.find(pattern_, done)) {
      next().part(held.substr(done, at - done));
      next().part(content_);
      done = at + pattern_.size();
    }
    size_t keep = std::min(pattern_.size() - 1, held.size() - done);
    while (!std::string_view(pattern_).starts_with(held.substr(held.size() - keep))) --keep;
    next().part(held.substr(done, held.size() - keep - done));
    held_.erase(0, held_.size() - keep);
  }
  void end_token() override {
    next().part(held_);
    held_.clear();
    next().end_token();
  }

 private:
  std::string pattern_, content_, held_;
};

// The character of SentencePiece is a space, and none at all in the first token.
class MetaspaceDecoding final : public WholeTokens {
 public:
  MetaspaceDecoding(std::string replacement, bool prepended)
      : replacement_(std::move(replacement)), first_(prepended) {}

 private:
  void token(const std::string& text) override {
    std::string result;
    for (size_t at = 0; at < text.size();) {
      const std::string_view character = std::string_view(text).substr(at, utf8_length(text[at]));
      if (character != replacement_) {
        result.append(character);
      } else if (!first_) {
        result.push_back(' ');
      }
      at += character.size();
    }
    first_ = false;
    emit(result);
  }

  std::string replacement_;
  bool first_;
};

}  // namespace

std::unique_ptr<DecodeStep> make_byte_level_decoding() { return std::make_unique<ByteLevelDecoding>(); }
std::unique_ptr<DecodeStep> make_byte_fallback_decoding() { return std::make_unique<ByteFallbackDecoding>(); }
std::unique_ptr<DecodeStep> make_fuse_decoding() { return std::make_unique<FuseDecoding>(); }
std::unique_ptr<DecodeStep> make_join_decoding() { return std::make_unique<JoinDecoding>(); }
std::unique_ptr<DecodeStep> make_strip_decoding(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripDecoding>(std::move(content), start, stop);
}
std::unique_ptr<DecodeStep> make_replace_decoding(std::string pattern, std::string content) {
  return std::make_unique<ReplaceDecoding>(std::move(pattern), std::move(content));
}
std::unique_ptr<DecodeStep> make_metaspace_decoding(std::string replacement, bool prepended) {
  return std::make_unique<MetaspaceDecoding>(std::move(replacement), prepended);
}

}  // namespace tigon
