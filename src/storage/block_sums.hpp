// The checksums of what was written where, until it is overwritten.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace tigon {

class BlockSums {
 public:
  struct Block {
    int64_t bytes = 0;
    uint64_t sum = 0;
    bool seen = false;  // it was read and right
  };

  void wrote(int64_t offset, int64_t bytes, uint64_t sum) {
    auto at = blocks_.lower_bound(offset);
    if (at != blocks_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > offset) --at;
    while (at != blocks_.end() && at->first < offset + bytes) at = blocks_.erase(at);
    blocks_.emplace(offset, Block{.bytes = bytes, .sum = sum});
  }

  // The block of just these bytes, or null.
  Block* find(int64_t offset, int64_t bytes) {
    const auto at = blocks_.find(offset);
    return at == blocks_.end() || at->second.bytes != bytes ? nullptr : &at->second;
  }

  // How many of the bytes at `offset` a read should take at once, so that it takes blocks whole where it can.
  int64_t until_block_ends(int64_t offset, int64_t bytes) const {
    const auto next = blocks_.upper_bound(offset);
    if (next != blocks_.end() && next->first < offset + bytes) bytes = next->first - offset;
    const auto here = blocks_.find(offset);
    return here != blocks_.end() && here->second.bytes < bytes ? here->second.bytes : bytes;
  }

 private:
  std::map<int64_t, Block> blocks_;
};

}  // namespace tigon
