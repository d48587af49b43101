#pragma once

#include <initializer_list>

#include "backend/cpu/parallel.hpp"
#include "tigon/core/tensor.hpp"

namespace tigon::cpu {

// Row i of a [rows, columns] tensor.
template <class T>
T* row(const Tensor& t, int64_t i) {
  return t.as<T>() + i * t.strides[0];
}

// Element i of a vector of indices, i32 or i64.
inline int64_t index_at(const Tensor& t, int64_t i) {
  return t.dtype == DType::i32 ? t.as<int32_t>()[i * t.strides[0]] : t.as<int64_t>()[i * t.strides[0]];
}

// Whether an output's rows should and can be stored past the cache: large, and every row aligned to a whole vector.
inline bool streams(const Tensor& t) {
  return larger_than_cache(t.bytes()) && reinterpret_cast<uintptr_t>(t.data) % 64 == 0 &&
         t.strides[0] * size_of(t.dtype) % 64 == 0;
}

// The same for an output that may be one of the inputs: then its lines are in cache already and stay there.
inline bool streams_apart_from(const Tensor& t, std::initializer_list<Tensor> inputs) {
  for (const Tensor& input : inputs) {
    if (input.data == t.data) return false;
  }
  return streams(t);
}

// out[j] = bias + t[j] in f32, or `missing` throughout when t is absent: a parameter row ready for use.
void widen_row(const Tensor& t, float bias, float missing, int64_t n, float* out);

// The n values at `row` rounded to bf16, in the first half of their own bytes.
void narrow_in_place(void* row, int64_t n);

// t[j] = (accumulate ? t[j] : 0) + Σ_b partials[b·n + j], the blocks in order: the second half of a sum over rows.
void reduce_partials(const Context& ctx, const float* partials, int64_t blocks, int64_t n, const Tensor& t,
                     bool accumulate);

}  // namespace tigon::cpu
