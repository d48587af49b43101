// The turns that thread blocks take at sums of a gradient, as attention's backward on Hopper has them: each tile of
// queries is added to by every piece of keys that it sees, once and in order, whatever was done in the same memory
// before.
#include "backend/cuda/attention_walk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace tigon::cuda {
namespace {

struct Row {
  std::vector<int32_t> starts, ends;

  explicit Row(const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
      const auto start = static_cast<int32_t>(starts.size());
      starts.insert(starts.end(), static_cast<size_t>(length), start);
      ends.insert(ends.end(), static_cast<size_t>(length), start + static_cast<int32_t>(length));
    }
  }
  int64_t seq() const { return static_cast<int64_t>(starts.size()); }
};

// Rows of one length in the same memory, a head of each after the other.
template <int kQueries, bool kDocuments>
void expect_turns(const std::vector<Row>& rows, bool causal) {
  constexpr int kKeys = 128;
  using Walk = AttentionWalk<kKeys, kQueries, kDocuments>;
  const int64_t seq = rows[0].seq();
  std::map<int, unsigned> counters;  // by tile
  for (size_t head = 0; head < rows.size(); ++head) {
    const Row& row = rows[head];
    for (int64_t piece = 0; piece < (seq + kKeys - 1) / kKeys; ++piece) {
      const Walk walk(piece, seq, causal, row.starts.data(), row.ends.data());
      ASSERT_GE(walk.walked(), 1);
      for (int tile = 0; tile < walk.tiles; ++tile) {
        const int64_t keys_end = std::min<int64_t>(seq, (piece + 1) * kKeys);
        bool seen = false;  // by any query of the tile any key of the piece
        for (int64_t query = tile * kQueries; query < std::min<int64_t>(seq, (tile + 1) * kQueries); ++query) {
          const int64_t first = kDocuments ? row.starts[static_cast<size_t>(query)] : 0,
                        last = causal ? query : seq - 1;
          seen = seen || (first < keys_end && last >= piece * kKeys);
        }
        const bool walked = tile >= walk.first_tile && tile <= walk.last_tile;
        ASSERT_EQ(walked, seen) << "seq " << seq << ", piece " << piece << ", tile " << tile;
        if (!walked) continue;
        // All before have had their turns, so that the first stores and those after it add.
        ASSERT_EQ(counters[tile], walk.turn(tile, static_cast<int64_t>(head)))
            << "piece " << piece << ", tile " << tile;
        ASSERT_EQ(walk.is_first(tile), piece == walk.first_piece(tile));
        counters[tile] += walk.turns_taken(tile);
      }
    }
    for (const auto& [tile, turns] : counters) {
      const Walk any(0, seq, causal, row.starts.data(), row.ends.data());
      ASSERT_EQ(turns, any.turn(tile, static_cast<int64_t>(head) + 1) + static_cast<unsigned>(any.first_piece(tile)))
          << "the next head would wait for ever";
    }
  }
}

TEST(AttentionWalk, EveryTileIsAddedToInTurn) {
  for (const int64_t seq : {1, 63, 64, 65, 128, 129, 300, 1024, 1100}) {
    const std::vector<Row> rows(3, Row({seq}));
    for (const bool causal : {true, false}) {
      expect_turns<64, false>(rows, causal);
      expect_turns<128, false>(rows, causal);
    }
    expect_turns<64, true>(rows, true);
  }
}

TEST(AttentionWalk, DocumentsOfOtherRowsChangeNoTurn) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t seq = 1 + random() % 900, longest = 1 + random() % 400;
    std::vector<Row> rows;
    for (int row = 0; row < 3; ++row) {
      std::vector<int64_t> lengths;
      for (int64_t left = seq; left > 0; left -= lengths.back()) {
        lengths.push_back(std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest))));
      }
      rows.emplace_back(lengths);
    }
    expect_turns<64, true>(rows, true);
    expect_turns<128, true>(rows, true);
  }
}

}  // namespace
}  // namespace tigon::cuda
