#pragma once

// Who adds to which gradient of the queries, and in which turn: the arithmetic alone, so that the host can test it.
#include <cstdint>

#ifdef __CUDACC__
#define TIGON_ANYWHERE __host__ __device__ __forceinline__
#else
#define TIGON_ANYWHERE inline
#endif

namespace tigon::cuda {

// The pieces of a head are its keys, kPieceKeys each; queries come in tiles of kQueries. A piece walks over the tiles
// that see any of its keys, from the last to the first, so pieces which begin together follow each other, however many
// tiles they see. The pieces that a tile sees have turns at the sum of its gradient, from the first keys to the last.
template <int kPieceKeys, int kQueries, bool kDocuments>
struct AttentionWalk {
  int piece, first_key, tiles, first_tile, last_tile;
  int pieces;             // of a row
  const int32_t* starts;  // of the row: the first key that each query sees

  // `ends`, of the row: one more than the last query that sees each key. Both only where the row has several documents.
  TIGON_ANYWHERE AttentionWalk(int64_t piece, int64_t seq, bool causal, const int32_t* starts, const int32_t* ends)
      : piece(static_cast<int>(piece)),
        first_key(this->piece * kPieceKeys),
        tiles(static_cast<int>((seq + kQueries - 1) / kQueries)),
        first_tile(causal ? first_key / kQueries : 0),
        last_tile(tiles - 1),
        pieces(static_cast<int>((seq + kPieceKeys - 1) / kPieceKeys)),
        starts(starts),
        causal_(causal) {
    if constexpr (kDocuments) {
      const int behind = first_key + kPieceKeys,
                keys_end = behind < static_cast<int>(seq) ? behind : static_cast<int>(seq);
      last_tile = (ends[keys_end - 1] - 1) / kQueries;
    }
  }
  TIGON_ANYWHERE int walked() const { return last_tile - first_tile + 1; }
  // The pieces that a tile sees: from the first on, and before the last.
  TIGON_ANYWHERE int first_piece(int tile) const {
    if constexpr (kDocuments) return starts[tile * kQueries] / kPieceKeys;
    return 0;
  }
  TIGON_ANYWHERE int end_piece(int tile) const {
    return causal_ ? ((tile + 1) * kQueries + kPieceKeys - 1) / kPieceKeys : pieces;
  }
  TIGON_ANYWHERE bool is_first(int tile) const { return piece == first_piece(tile); }
  TIGON_ANYWHERE bool is_last(int tile) const { return piece == end_piece(tile) - 1; }

  // A tile's counter stands at this when it is the piece's turn, and rises by that at the end of it. Heads that use the
  // same memory follow each other, each for as many turns as one has that sees all pieces before its end: rows may have
  // other documents, and still none has to know of those before.
  TIGON_ANYWHERE unsigned turn(int tile, int64_t heads_before) const {
    return static_cast<unsigned>(heads_before * end_piece(tile) + piece - first_piece(tile));
  }
  TIGON_ANYWHERE unsigned turns_taken(int tile) const {
    return 1u + (is_last(tile) ? static_cast<unsigned>(first_piece(tile)) : 0u);
  }

 private:
  bool causal_;
};

}  // namespace tigon::cuda

#undef TIGON_ANYWHERE
