#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/fields.hpp"

namespace tigon {

// A step on the way from tokens to text. It takes tokens in order, each in one part or several, and hands tokens to the
// next one as soon as nothing to come can change them. So there is one way for a whole text and for one that comes
// token by token.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void part(std::string_view text) = 0;  // of whole characters, as long as the tokens are
  virtual void end_token() = 0;
  virtual void finish() { next_->finish(); }  // no token comes any more

  void lead_to(DecodeStep& next) { next_ = &next; }

 protected:
  void emit(std::string_view token) const {
    next_->part(token);
    next_->end_token();
  }
  DecodeStep& next() const { return *next_; }

 private:
  DecodeStep* next_ = nullptr;
};

// The steps of a tokenizer.json.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(const Field& field);

  // Of one text.
  class Stream {
   public:
    explicit Stream(const Decoder& decoder);
    void push(std::string_view token);
    void finish();
    std::string take();  // what there is by now

   private:
    std::vector<std::unique_ptr<DecodeStep>> steps_;
  };

 private:
  void add(const Field& field);

  std::vector<std::function<std::unique_ptr<DecodeStep>()>> makers_;
};

std::unique_ptr<DecodeStep> make_byte_level_decoding();
std::unique_ptr<DecodeStep> make_byte_fallback_decoding();
std::unique_ptr<DecodeStep> make_fuse_decoding();
std::unique_ptr<DecodeStep> make_join_decoding();  // by spaces: what is done where a file names no decoder
std::unique_ptr<DecodeStep> make_strip_decoding(std::string content, size_t start, size_t stop);
std::unique_ptr<DecodeStep> make_replace_decoding(std::string pattern, std::string content);
std::unique_ptr<DecodeStep> make_metaspace_decoding(std::string replacement, bool prepended);

}  // namespace tigon
