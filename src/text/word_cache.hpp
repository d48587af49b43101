#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tigon {

// The tokens of words seen before. Of fixed size, a cache line a word: long words, and those of many tokens, are rare
// and not kept. A word has two places; a new one takes the first and moves who is there to his second.
class WordCache {
 public:
  static constexpr size_t kLongest = 32;
  static constexpr size_t kMostIds = 6;

  // A word as its bytes in whole machine words, filled up with zeros. It may end in zeros itself: its length tells.
  struct Key {
    std::array<uint64_t, kLongest / 8> words{};
    uint16_t length;
    uint64_t hash;

    explicit Key(std::string_view word) : length(static_cast<uint16_t>(word.size())), hash(word.size()) {
      std::memcpy(words.data(), word.data(), word.size());
      for (const uint64_t part : words) hash = ((hash << 23 | hash >> 41) ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
  };

  static bool fits(std::string_view word) { return word.size() <= kLongest; }

  // The tokens of a word, or nothing where it is not known.
  std::span<const int32_t> find(const Key& key) const {
    for (const size_t at : places(key)) {
      const Entry& entry = entries_[at];
      if (entry.count != 0 && entry.length == key.length && entry.words == key.words)
        return {entry.ids.data(), entry.count};
    }
    return {};
  }
  void put(const Key& key, std::span<const int32_t> ids) {
    if (ids.empty() || ids.size() > kMostIds) return;
    Entry& first = entries_[places(key)[0]];
    if (first.count != 0) entries_[places(key)[1]] = first;
    first.words = key.words;
    first.length = key.length;
    first.count = static_cast<uint16_t>(ids.size());
    std::copy(ids.begin(), ids.end(), first.ids.begin());
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 17;
  struct alignas(64) Entry {
    std::array<uint64_t, kLongest / 8> words;
    uint16_t count;  // 0: nothing is here
    uint16_t length;
    std::array<int32_t, kMostIds> ids;
  };

  // Neighbours, so that each is the other's second.
  static std::array<size_t, 2> places(const Key& key) {
    const size_t at = key.hash & (kEntries - 1);
    return {at, at ^ 1};
  }

  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace tigon
