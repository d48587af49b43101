#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "trace/stream_file.hpp"

namespace tigon {

// Writes a pickle of protocol 2, value by value, with lists and dictionaries in batches: readers collect a batch on a
// stack, which one that is written in JavaScript passes as arguments. Strings that come again are written once.
class Pickle {
 public:
  explicit Pickle(StreamFile& file) : file_(file) { put("\x80\x02"); }

  void integer(int64_t value);
  void text(std::string_view value);
  void boolean(bool value) { put(value ? "\x88" : "\x89"); }

  // Values between begin and end, of a dictionary a key and a value each; item() comes before each.
  class Items {
   public:
    Items(Pickle& pickle, bool dictionary) : pickle_(pickle), dictionary_(dictionary) {
      pickle_.put(dictionary ? "}" : "]");
    }
    void item() {
      if (count_ == kBatch) close();
      if (count_++ == 0) pickle_.put("(");
    }
    void item(std::string_view key) {
      item();
      pickle_.text(key);
    }
    void integer(std::string_view key, int64_t value) {
      item(key);
      pickle_.integer(value);
    }
    void text(std::string_view key, std::string_view value) {
      item(key);
      pickle_.text(value);
    }
    void end() {
      if (count_ > 0) close();
    }

   private:
    static constexpr int kBatch = 1000;
    void close() {
      pickle_.put(dictionary_ ? "u" : "e");
      count_ = 0;
    }

    Pickle& pickle_;
    bool dictionary_;
    int count_ = 0;
  };
  Items list() { return {*this, false}; }
  Items dictionary() { return {*this, true}; }

  // The value that was just written, to write it again by its number.
  int32_t keep();
  void again(int32_t kept);

  void end() { put("."); }

 private:
  void put(std::string_view bytes) { file_.write(bytes); }
  void little_endian(uint64_t value, int bytes);

  StreamFile& file_;
  std::map<std::string, int32_t, std::less<>> texts_;
  int32_t kept_ = 0;
};

}  // namespace tigon
