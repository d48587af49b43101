#pragma once

#include "tigon/core/context.hpp"

// dweight = Σ dlogitsᵀ·x over chunks of tokens, in bf16 and no memory but its own.
//
// A sum of many chunks that is rounded to bf16 after each of them has lost more than the one rounding at the end takes.
// So what stands in dweight between chunks is not bf16 but f16, which has three bits more, times a power of two for
// each kSumColumns columns of a row: the exponent of the largest of them. The last chunk leaves bf16.
namespace tigon::cuda {

inline constexpr int64_t kSumColumns = 128;

// One chunk's share.
struct DweightChunk {
  Tensor dlogits{};              // [tokens, classes]
  Tensor x{};                    // [tokens, hidden]
  Tensor dweight{};              // [classes, hidden]
  uint8_t* exponents = nullptr;  // [classes, ⌈hidden / kSumColumns⌉]: those of the largest, as f32 have them
  bool accumulate = false;       // the first chunk adds to what is there, in bf16
  bool first = false;
  bool last = false;
  // How many tokens count, which the device knows; those from `begin` up to `end` are this chunk's. One that has none
  // is left out, and the one that has the last of them is the last.
  const int64_t* counted = nullptr;
  int64_t begin = 0, end = 0;
};

// Whether sums of this type and size can be kept so on this GPU, which takes Hopper.
bool dweight_sums_fit(const Context& ctx, const Tensor& dweight);

// Rows of dlogits and x begin at multiples of 16 bytes; those of dweight anywhere.
void add_to_dweight(const Context& ctx, const DweightChunk& chunk);

}  // namespace tigon::cuda
