// How a GPU's kernels cut rows that begin at any element: each column once, nothing outside.
#include "backend/cuda/row_share.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tigon::cuda {
namespace {

TEST(RowShare, BlocksShareOutEachColumnOnce) {
  for (const int lanes : {4, 8}) {
    for (int columns = 1; columns < 300; ++columns) {
      for (int lead = 0; lead < lanes; ++lead) {
        for (const int blocks : {1, 2, 4, 8}) {
          const int elements = static_cast<int>(most_vectors(columns, lanes)) * lanes;
          ASSERT_GE(elements, lead + columns);
          const int segment = (elements + blocks * 16 - 1) / (blocks * 16) * 16;
          int next = 0;
          for (int rank = 0; rank < blocks; ++rank) {
            const RowShare share = row_share(columns, lead, segment, rank);
            ASSERT_EQ(share.begin, next);
            ASSERT_LE(share.begin, share.end);
            next = share.end;
            ASSERT_LE(share.vectors(lanes) * lanes, segment) << "more than was made room for";
            if (share.begin == share.end) continue;
            ASSERT_EQ((share.first() + lead) % lanes, 0) << "not at 16 bytes";
            ASSERT_LE(share.first(), share.begin);
            ASSERT_LT(share.begin - share.first(), lanes);
            ASSERT_GE(share.first() + share.vectors(lanes) * lanes, share.end);
            ASSERT_LT(share.first() + share.vectors(lanes) * lanes, share.end + lanes);
          }
          ASSERT_EQ(next, columns);
        }
      }
    }
  }
}

TEST(RowShare, WholeVectorsAreTheRowsAlone) {
  constexpr int kLanes = 8;
  for (int columns = 1; columns < 40; ++columns) {
    for (int lead = 0; lead < kLanes; ++lead) {
      const RowShare share{0, columns, lead};
      for (int v = 0; v < share.vectors(kLanes); ++v) {
        const int j = share.first() + v * kLanes;
        const bool whole = j >= 0 && j + kLanes <= columns;
        EXPECT_EQ(whole, j >= share.whole_begin(kLanes) && j < share.whole_end(kLanes))
            << columns << " columns, lead " << lead << ", vector " << v;
        // Only the first and the last can be otherwise.
        EXPECT_TRUE(whole || v == 0 || v == share.vectors(kLanes) - 1);
      }
    }
  }
}

TEST(RowShare, EachRowHasOneWalkerThatKeepsItsPlace) {
  for (const int lanes : {4, 8}) {
    for (const int total : {1, 3, 4, 7, 8, 9, 16, 132, 264, 2112}) {
      for (const int rows : {0, 1, 5, 8, 131, 132, 133, 1000, 5003}) {
        if (total < lanes && rows > total) continue;
        std::vector<int> walkers(static_cast<size_t>(rows));
        for (int index = 0; index < total; ++index) {
          const int step = walk_step(index, total, lanes);
          ASSERT_EQ(step % lanes, 0);
          int walked = 0;
          for (int row = index; row < rows; row += step, ++walked) ++walkers[static_cast<size_t>(row)];
          ASSERT_LE(walked, longest_walk(total, lanes, rows));
        }
        for (const int count : walkers) ASSERT_EQ(count, 1) << total << " walkers of " << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace tigon::cuda
