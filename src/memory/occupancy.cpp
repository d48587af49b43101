#include "memory/occupancy.hpp"

#include <algorithm>

namespace tigon {

void RangeSet::add(Range range) {
  // The first range that ends where this one begins or later, and the first that begins after its end.
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                                      [](const Range& r, int64_t value) { return r.end < value; });
  const auto last =
      std::upper_bound(first, ranges_.end(), range.end, [](int64_t value, const Range& r) { return value < r.begin; });
  if (first == last) {
    ranges_.insert(first, range);
    return;
  }
  *first = {std::min(first->begin, range.begin), std::max((last - 1)->end, range.end)};
  ranges_.erase(first + 1, last);
}

Occupancy::Occupancy(int64_t times) {
  while (leaves_ < times) leaves_ *= 2;
  nodes_.resize(static_cast<size_t>(2 * leaves_));
}

int64_t Occupancy::lowest_gap(int64_t first, int64_t last, int64_t need) const {
  std::vector<RangeSet::Range> taken;
  collect(1, 0, leaves_, first, last, taken);
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  int64_t offset = 0;
  for (const RangeSet::Range& range : taken) {
    if (range.begin >= offset + need) break;
    offset = std::max(offset, range.end);
  }
  return offset;
}

void Occupancy::take(int64_t first, int64_t last, RangeSet::Range bytes) {
  if (bytes.begin < bytes.end) add(1, 0, leaves_, first, last, bytes);
}

// Node n, of the moments [begin, end), has the children 2n and 2n + 1, of a half each.
void Occupancy::collect(size_t node, int64_t begin, int64_t end, int64_t first, int64_t last,
                        std::vector<RangeSet::Range>& taken) const {
  if (last <= begin || end <= first) return;
  const bool whole = first <= begin && end <= last;
  const auto& ranges = (whole ? nodes_[node].sometimes : nodes_[node].always).ranges();
  taken.insert(taken.end(), ranges.begin(), ranges.end());
  if (whole) return;
  const int64_t middle = begin + (end - begin) / 2;
  collect(2 * node, begin, middle, first, last, taken);
  collect(2 * node + 1, middle, end, first, last, taken);
}

void Occupancy::add(size_t node, int64_t begin, int64_t end, int64_t first, int64_t last, RangeSet::Range bytes) {
  if (last <= begin || end <= first) return;
  nodes_[node].sometimes.add(bytes);
  if (first <= begin && end <= last) return nodes_[node].always.add(bytes);
  const int64_t middle = begin + (end - begin) / 2;
  add(2 * node, begin, middle, first, last, bytes);
  add(2 * node + 1, middle, end, first, last, bytes);
}

}  // namespace tigon
