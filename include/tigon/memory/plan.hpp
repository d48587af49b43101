#pragma once

#include <cstdint>
#include <vector>

#include "tigon/memory/ledger.hpp"

namespace tigon {

// Addresses for a sequence of births and deaths that will be repeated exactly. Made from the ledger of one walk in
// measure mode: blocks whose lives overlap never share bytes, everything else may.
class Plan {
 public:
  struct Block {
    LedgerEntry life;
    int64_t offset = 0;
  };

  // Packs largest first into the lowest gap that is free for the whole life of a block.
  static Plan pack(const Ledger& measured);

  // What the run takes, once: the end of the highest block.
  int64_t bytes() const noexcept { return bytes_; }
  // No packing can need less: the most bytes alive at one time.
  int64_t lower_bound() const noexcept { return lower_bound_; }
  // In order of birth.
  const std::vector<Block>& blocks() const noexcept { return blocks_; }

 private:
  std::vector<Block> blocks_;
  int64_t bytes_ = 0;
  int64_t lower_bound_ = 0;
};

}  // namespace tigon
