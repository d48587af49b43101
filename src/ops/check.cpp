#include "ops/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tigon::ops {

namespace {

// Elements. More than any address space holds, and so few that a backend can count the bytes of a few f32 copies.
constexpr int64_t kLargestExtent = INT64_MAX / 64;

std::string quoted(const char* name) { return "'" + std::string(name) + "'"; }

// First and one-past-last byte that a tensor touches; strides are known not to be negative.
std::pair<uintptr_t, uintptr_t> byte_range(const Tensor& t) {
  const auto first = reinterpret_cast<uintptr_t>(t.data);
  int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) {
    if (t.sizes[d] == 0) return {first, first};
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return {first, first + static_cast<uintptr_t>((last + 1) * size_of(t.dtype))};
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int d = 0; d < a.rank; ++d) {
    if (a.sizes[d] != b.sizes[d]) return false;
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;  // one element's stride may be anything
  }
  return true;
}

// Bytes from the first to one past the last element, counting only dimensions that do not step by multiples of period.
int64_t width_modulo(const Tensor& t, int64_t period) {
  int64_t width = size_of(t.dtype);
  for (int d = 0; d < t.rank; ++d) {
    if (t.sizes[d] <= 1) continue;  // its stride is never taken, and may be anything
    const int64_t step = t.strides[d] * size_of(t.dtype);
    if (step % period != 0) width += (t.sizes[d] - 1) * step;
  }
  return width;
}

bool apart_modulo(const Tensor& a, const Tensor& b, int64_t period) {
  if (period <= 0) return false;
  const int64_t difference = static_cast<int64_t>(reinterpret_cast<uintptr_t>(b.data)) -
                             static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.data));
  const int64_t shift = ((difference % period) + period) % period;
  return shift >= width_modulo(a, period) && shift + width_modulo(b, period) <= period;
}

}  // namespace

bool overlap(const Tensor& a, const Tensor& b) {
  const auto [a_first, a_last] = byte_range(a);
  const auto [b_first, b_last] = byte_range(b);
  if (a_first == a_last || b_first == b_last || a_last <= b_first || b_last <= a_first) return false;
  // Blocks of one packed buffer interleave in memory without sharing elements (a and b of a gated MLP, q and k of a
  // fused projection). Fold the addresses by a stride: dimensions that step by its multiples vanish, and what is left
  // of either tensor is one interval.
  for (const Tensor* t : {&a, &b}) {
    for (int d = 0; d < t->rank; ++d) {
      if (t->sizes[d] > 1 && apart_modulo(a, b, t->strides[d] * size_of(t->dtype))) return false;
    }
  }
  return true;
}

Check::Check(const char* op, const Context& ctx) : op_(op), ctx_(ctx) {
  known("device.kind", ctx.device.kind, DeviceKind::cuda);
  in_range("threads", ctx.threads, 0, kMostThreads);
}

void Check::fail(std::string what, std::string expected, std::string got, std::string fix) const {
  throw Error(ErrorCode::invalid_argument, {.where = op_,
                                            .what = std::move(what),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

void Check::tensor(const char* name, const Tensor& t, std::initializer_list<int64_t> sizes, const char* why) const {
  if (!t.present()) fail(quoted(name) + " is missing", "a tensor" + (*why ? " " + std::string(why) : ""));
  bool matches = t.rank == static_cast<int32_t>(sizes.size());
  for (int d = 0; matches && d < t.rank; ++d) {
    const int64_t wanted = sizes.begin()[d];
    matches = wanted < 0 || t.sizes[d] == wanted;
  }
  if (!matches) {
    std::string expected = "[";
    for (const int64_t size : sizes)
      expected += (expected.size() > 1 ? ", " : "") + (size < 0 ? "any" : std::to_string(size));
    expected += "]";
    if (*why) expected += " (" + std::string(why) + ")";
    fail(quoted(name) + " has the wrong shape", expected,
         t.rank <= kMaxRank ? shape_string(t) : "rank " + std::to_string(t.rank));
  }
  any_shape(name, t);
}

void Check::any_shape(const char* name, const Tensor& t) const {
  if (!t.present()) fail(quoted(name) + " is missing", "a tensor");
  if (!is_known(t.dtype)) {
    fail(quoted(name) + " has an unknown dtype", "a number from 0 to " + std::to_string(kDTypeCount - 1),
         std::to_string(static_cast<int32_t>(t.dtype)));
  }
  if (t.rank > kMaxRank) {
    fail(quoted(name) + " has too many dimensions", "at most " + std::to_string(kMaxRank), std::to_string(t.rank));
  }
  // Sizes and extent must be countable before anything multiplies them.
  const std::span<const int64_t> t_sizes(t.sizes, static_cast<size_t>(t.rank));
  (void)checked_bytes(op_, t.dtype, t_sizes);
  int64_t extent = 1, product = 1;
  for (int d = 0; d < t.rank; ++d) {
    int64_t reach = 0;
    if (t.strides[d] < 0 || __builtin_mul_overflow(std::max<int64_t>(0, t.sizes[d] - 1), t.strides[d], &reach) ||
        __builtin_add_overflow(extent, reach, &extent) || extent > kLargestExtent) {
      fail(quoted(name) + " has an impossible stride in dimension " + std::to_string(d),
           "not negative, and inside the address space", std::to_string(t.strides[d]));
    }
    // Also where another size is 0: scratch may follow from this one alone.
    if (__builtin_mul_overflow(product, std::max<int64_t>(1, t.sizes[d]), &product) || product > kLargestExtent)
      fail(quoted(name) + " has impossible sizes", "a product inside the address space", shape_string(t));
  }
  if (t.device != ctx_.device) {
    fail(quoted(name) + " is on the wrong device", to_string(ctx_.device), to_string(t.device));
  }
  if (ctx_.measuring() || t.elements() == 0) return;
  if (t.data == nullptr) fail(quoted(name) + " has a null data pointer", "memory for " + shape_string(t));
  if (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(size_of(t.dtype)) != 0) {
    fail(quoted(name) + " is misaligned",
         "a multiple of " + std::to_string(size_of(t.dtype)) + " bytes for " + std::string(to_string(t.dtype)));
  }
}

void Check::optional(const char* name, const Tensor& t, std::initializer_list<int64_t> sizes, const char* why) const {
  if (t.present()) tensor(name, t, sizes, why);
}

void Check::floating(const char* name, const Tensor& t) const {
  if (t.present() && !is_float(t.dtype)) {
    fail(quoted(name) + " has the wrong type", "f32, bf16, f16 or f64", std::string(to_string(t.dtype)));
  }
}

void Check::dtype_is(const char* name, const Tensor& t, DType dtype) const {
  if (t.present() && t.dtype != dtype) {
    fail(quoted(name) + " has the wrong type", std::string(to_string(dtype)), std::string(to_string(t.dtype)));
  }
}

void Check::same_dtype(const char* name, const Tensor& t, const char* like_name, const Tensor& like) const {
  if (t.present() && t.dtype != like.dtype) {
    fail(quoted(name) + " has the wrong type", std::string(to_string(like.dtype)) + " as " + quoted(like_name),
         std::string(to_string(t.dtype)));
  }
}

void Check::index(const char* name, const Tensor& t) const {
  if (t.present() && !is_index(t.dtype)) {
    fail(quoted(name) + " has the wrong type", "i32 or i64", std::string(to_string(t.dtype)));
  }
}

void Check::parameter(const char* name, const Tensor& t, const Tensor& like) const {
  if (!t.present() || t.dtype == like.dtype) return;
  if (like.dtype != DType::f64 && t.dtype == DType::f32) return;
  fail(quoted(name) + " has the wrong type",
       std::string(to_string(like.dtype)) + (like.dtype == DType::f64 || like.dtype == DType::f32 ? "" : " or f32"),
       std::string(to_string(t.dtype)));
}

void Check::statistic(const char* name, const Tensor& t, const Tensor& like) const {
  dtype_is(name, t, like.dtype == DType::f64 ? DType::f64 : DType::f32);
}

void Check::rows_contiguous(const char* name, const Tensor& t) const {
  if (!t.present() || t.rank == 0) return;
  if (t.sizes[t.rank - 1] > 1 && t.strides[t.rank - 1] != 1) {
    fail(quoted(name) + " has a gap between neighbouring elements", "stride 1 in the last dimension",
         std::to_string(t.strides[t.rank - 1]), "Pass a contiguous copy.");
  }
}

void Check::contiguous(const char* name, const Tensor& t) const {
  if (t.present() && !t.is_contiguous()) {
    fail(quoted(name) + " has gaps", "a contiguous tensor",
         shape_string(t) + " with strides " +
             shape_string(std::span<const int64_t>(t.strides, static_cast<size_t>(t.rank))),
         "Pass a contiguous copy.");
  }
}

void Check::writable(const char* name, const Tensor& t) const {
  rows_contiguous(name, t);
  distinct(name, t);
}

void Check::distinct(const char* name, const Tensor& t) const {
  if (!t.present() || t.elements() == 0) return;  // without elements no strides are ever taken
  // Sorted by stride, each dimension must step over the whole of the smaller ones.
  bool done[kMaxRank] = {};
  int64_t reach = 1;
  for (int i = 0; i < t.rank; ++i) {
    int d = -1;
    for (int c = 0; c < t.rank; ++c) {
      if (!done[c] && (d < 0 || t.strides[c] < t.strides[d])) d = c;
    }
    done[d] = true;
    if (t.sizes[d] <= 1) continue;
    if (t.strides[d] < reach) {
      fail(quoted(name) + " is written to, but its elements share memory", "strides that keep them apart",
           "stride " + std::to_string(t.strides[d]) + " in dimension " + std::to_string(d));
    }
    reach = t.strides[d] * (t.sizes[d] - 1) + reach;
  }
}

void Check::apart(const char* out_name, const Tensor& out, const char* name, const Tensor& t, bool may_be) const {
  if (!out.present() || !t.present() || ctx_.measuring()) return;
  any_shape(out_name, out);  // an op may ask before it has looked at the other tensor, and extents are multiplied below
  any_shape(name, t);
  if (may_be && same_layout(out, t)) return;
  if (overlap(out, t)) {
    fail(quoted(out_name) + " overlaps " + quoted(name),
         may_be ? "the very same tensor, or separate memory" : "separate memory");
  }
}

void Check::indices_below(const char* name, const Tensor& t, int64_t limit, const int64_t* except) const {
  check_indices(name, t, limit, except, false);
}

void Check::indices_below_or_negative(const char* name, const Tensor& t, int64_t limit) const {
  check_indices(name, t, limit, nullptr, true);
}

void Check::check_indices(const char* name, const Tensor& t, int64_t limit, const int64_t* except,
                          bool negative) const {
  if (ctx_.measuring() || ctx_.device.kind != DeviceKind::cpu) return;
  const int64_t count = t.elements(), stride = t.rank == 1 ? t.strides[0] : 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = t.dtype == DType::i32 ? t.as<int32_t>()[i * stride] : t.as<int64_t>()[i * stride];
    if ((value >= 0 && value < limit) || (value < 0 && negative) || (except != nullptr && value == *except)) continue;
    fail(quoted(name) + " is out of range at position " + std::to_string(i),
         "0 to " + std::to_string(limit - 1) +
             (except != nullptr ? " or the ignore index " + std::to_string(*except) : std::string()),
         std::to_string(value));
  }
}

void Check::finite(const char* name, double value) const {
  if (!std::isfinite(value)) fail(quoted(name) + " is not finite", "a number", fmt::format("{}", value));
}

void Check::in_range(const char* name, double value, double low, double high) const {
  if (!(value >= low && value <= high)) {  // also catches NaN
    fail(quoted(name) + " is out of range", fmt::format("{} to {}", low, high), fmt::format("{}", value));
  }
}

}  // namespace tigon::ops
