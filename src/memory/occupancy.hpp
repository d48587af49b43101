#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tigon {

// Bytes [begin, end) that are taken, as ranges that neither overlap nor touch, by rising begin.
class RangeSet {
 public:
  struct Range {
    int64_t begin, end;
  };
  void add(Range range);
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// Which bytes are taken at which of `times` moments. A segment tree over the moments: a search looks at a few nodes of
// each level, and since blocks are packed densely, and those of a loop lie where the last round's lay, the taken bytes
// of a node are few ranges however many blocks they come from.
class Occupancy {
 public:
  explicit Occupancy(int64_t times);

  // The lowest offset from which `need` bytes are free at all moments of [first, last).
  int64_t lowest_gap(int64_t first, int64_t last, int64_t need) const;
  void take(int64_t first, int64_t last, RangeSet::Range bytes);

 private:
  struct Node {
    RangeSet always;     // taken at all of the node's moments
    RangeSet sometimes;  // taken at one of them or more
  };
  void collect(size_t node, int64_t begin, int64_t end, int64_t first, int64_t last,
               std::vector<RangeSet::Range>& taken) const;
  void add(size_t node, int64_t begin, int64_t end, int64_t first, int64_t last, RangeSet::Range bytes);

  int64_t leaves_ = 1;  // a power of two
  std::vector<Node> nodes_;
};

}  // namespace tigon
