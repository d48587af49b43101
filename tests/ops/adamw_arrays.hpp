#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tigon/core/philox.hpp"
#include "tigon/ops/adamw.hpp"

namespace tigon::test {

// What one update reads and writes, in one piece of memory, so that it can be copied and compared as a whole.
class AdamwArrays {
 public:
  // `state`: u8 means 8 bits with scales. `shift`: elements by which everything is off its alignment.
  AdamwArrays(int64_t n, DType param, DType state, bool copy = false, bool stochastic = false, int64_t shift = 0)
      : stochastic_(stochastic) {
    const bool coded = state == DType::u8;
    add(param, n, shift);
    add(DType::bf16, n, shift);
    add(state, n, shift);
    add(state, n, shift);
    for (int i = 0; i < 2; ++i) add(DType::f32, coded ? (n + ops::kCodeBlock - 1) / ops::kCodeBlock : kAbsent, 0);
    add(DType::f16, copy ? n : kAbsent, shift);
    memory_.resize(static_cast<size_t>(end_));
  }

  void fill(uint64_t seed) {
    const RandomStream random{.seed = seed};
    for (int which = 0; which < 2; ++which) {
      const Tensor t = tensor(which, memory_.data(), {});
      for (int64_t e = 0; e < t.elements(); ++e) {
        const float value = random.normal(static_cast<uint64_t>(2 * e + which));
        if (t.dtype == DType::f32) t.as<float>()[e] = value;
        if (t.dtype == DType::bf16) t.as<bf16>()[e] = bf16(value);
        if (t.dtype == DType::f16) t.as<f16>()[e] = f16(value);
      }
    }
  }

  std::vector<std::byte>& bytes() { return memory_; }
  const std::vector<std::byte>& bytes() const { return memory_; }

  // Over a copy of the bytes somewhere, or over these.
  ops::Adamw update(int64_t step, uint32_t id, std::byte* data = nullptr, Device device = {}) {
    const auto at = [&](int which) { return tensor(which, data == nullptr ? memory_.data() : data, device); };
    return {.param = at(0),
            .grad = at(1),
            .m = at(2),
            .v = at(3),
            .m_scale = at(4),
            .v_scale = at(5),
            .param_copy = at(6),
            .lr = 0.01 * (1 + id),
            .weight_decay = 0.1,
            .step = step,
            .rounding = stochastic_ ? ops::Rounding::stochastic : ops::Rounding::nearest,
            .seed = 7,
            .tensor_id = id};
  }

 private:
  static constexpr int64_t kAbsent = -1;
  struct Place {
    DType dtype;
    int64_t elements, offset;
  };
  void add(DType dtype, int64_t elements, int64_t shift) {
    places_.push_back({dtype, elements, (end_ + 255) / 256 * 256 + shift * size_of(dtype)});
    end_ = places_.back().offset + std::max<int64_t>(0, elements) * size_of(dtype);
  }
  Tensor tensor(int which, std::byte* data, Device device) const {
    const Place& place = places_[static_cast<size_t>(which)];
    if (place.elements == kAbsent) return {};
    return Tensor::contiguous(data + place.offset, place.dtype, {place.elements}, device);
  }

  std::vector<Place> places_;
  int64_t end_ = 0;
  bool stochastic_;
  std::vector<std::byte> memory_;
};

// Types, sizes around those of blocks and vectors, one without elements, one of several tasks.
inline std::vector<AdamwArrays> adamw_arrays_of_every_kind() {
  std::vector<AdamwArrays> arrays;
  for (const int64_t n : {int64_t{1}, int64_t{255}, int64_t{0}, int64_t{4096}, int64_t{150001}}) {
    for (const int64_t shift : {0, 1}) {
      arrays.push_back(AdamwArrays(n, DType::f32, DType::f32, true, false, shift));
      arrays.push_back(AdamwArrays(n, DType::bf16, DType::bf16, false, true, shift));
      arrays.push_back(AdamwArrays(n, DType::f16, DType::f32, false, true, shift));
      arrays.push_back(AdamwArrays(n, DType::f32, DType::u8, true, false, shift));
      arrays.push_back(AdamwArrays(n, DType::bf16, DType::u8, false, true, shift));
    }
  }
  for (size_t i = 0; i < arrays.size(); ++i) arrays[i].fill(i);
  return arrays;
}

inline std::vector<ops::Adamw> updates_of(std::vector<AdamwArrays>& arrays, int64_t step) {
  std::vector<ops::Adamw> list;
  for (size_t i = 0; i < arrays.size(); ++i) list.push_back(arrays[i].update(step, static_cast<uint32_t>(i)));
  return list;
}

}  // namespace tigon::test
