#pragma once

// Rows that may begin at any element, cut into vectors of `lanes` elements that begin at multiples of 16 bytes: the
// arithmetic alone, so that the host can test it.
#ifdef __CUDACC__
#define TIGON_ANYWHERE __host__ __device__ __forceinline__
#else
#define TIGON_ANYWHERE inline
#endif

namespace tigon::cuda {

// Columns [begin, end) of a row, which one block works on. The first `lead` elements of its first vector lie before
// column `begin`: they are not this row's.
struct RowShare {
  int begin, end, lead;

  // Where the vectors begin, and how many there are.
  TIGON_ANYWHERE int first() const { return begin - lead; }
  TIGON_ANYWHERE int vectors(int lanes) const { return begin < end ? (end - first() + lanes - 1) / lanes : 0; }
  // The vectors that are the share's alone hold columns [whole_begin, whole_end), which may be none.
  TIGON_ANYWHERE int whole_begin(int lanes) const { return lead > 0 ? first() + lanes : begin; }
  TIGON_ANYWHERE int whole_end(int lanes) const { return first() + (end - first()) / lanes * lanes; }
};

// The share of block `rank` of those that take `segment` elements each, a multiple of the lanes; the first takes its
// lead among them.
TIGON_ANYWHERE RowShare row_share(int columns, int lead, int segment, int rank) {
  const auto column = [&](int element) {
    const int j = element - lead;
    return j < 0 ? 0 : j < columns ? j : columns;
  };
  return {column(rank * segment), column((rank + 1) * segment), rank == 0 ? lead : 0};
}

// The vectors around a row of so many columns, at most.
TIGON_ANYWHERE long long most_vectors(long long columns, int lanes) { return (columns + 2 * lanes - 2) / lanes; }

// Rows index, index + step, …: those of one of `total` walkers. Each row has one walker, and all rows of a walker begin
// at the same place of their first vector: that repeats after `lanes` rows. Where total < lanes there may be no more
// rows than walkers.
TIGON_ANYWHERE int walk_step(int index, int total, int lanes) {
  return lanes * ((total - index % lanes + lanes - 1) / lanes);
}
// The most rows that any of them has.
TIGON_ANYWHERE int longest_walk(int total, int lanes, int rows) {
  const int step = total < lanes ? lanes : total / lanes * lanes;
  return (rows + step - 1) / step;
}

}  // namespace tigon::cuda

#undef TIGON_ANYWHERE
