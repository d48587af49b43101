#pragma once

#include <cstdint>
#include <vector>

namespace tigon {

// What becomes of two tokens that stand side by side. Open addressing in one block of memory: a lookup is most often
// one cache line, where std::unordered_map has three.
class PairTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  void reserve(size_t pairs) {
    size_t slots = 16;
    while (slots < 2 * pairs) slots *= 2;
    slots_.assign(slots, Slot{kNone, {}});
  }
  // A pair that is there already gets the new value. At most as many pairs as were reserved.
  void set(int32_t left, int32_t right, Merge merge) {
    slots_[place(key_of(left, right))] = {key_of(left, right), merge};
  }
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[place(key_of(left, right))];
    return slot.key == kNone ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};  // ids are not negative
  struct Slot {
    uint64_t key;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // Where a key is, or where it would be put.
  size_t place(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    size_t at = (mixed >> 32) & (slots_.size() - 1);
    while (slots_[at].key != key && slots_[at].key != kNone) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_{16, Slot{kNone, {}}};
};

}  // namespace tigon
