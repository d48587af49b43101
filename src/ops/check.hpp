#pragma once

#include <initializer_list>
#include <string>

#include "tigon/core/context.hpp"
#include "tigon/core/error.hpp"

namespace tigon::ops {

// The argument checks of one op call. Every function throws an Error that names the op, the argument, what was
// expected and what came; after the checks a backend may rely on them. In measure mode data pointers are not looked at.
class Check {
 public:
  // Throws where the context itself makes no sense.
  Check(const char* op, const Context& ctx);

  // A tensor that must be there, with exactly these sizes; `why` says where they come from ("[tokens, hidden] of x").
  // -1 takes any size. Known dtype, sizes not negative and not overflowing, ctx's device, non-null and element-aligned.
  void tensor(const char* name, const Tensor& t, std::initializer_list<int64_t> sizes, const char* why = "") const;
  // The same, but absent is fine.
  void optional(const char* name, const Tensor& t, std::initializer_list<int64_t> sizes, const char* why = "") const;

  // A tensor that must be there, of any rank and sizes; the other promises of `tensor`.
  void any_shape(const char* name, const Tensor& t) const;

  // A floating type; `like` fixes it to another tensor's.
  void floating(const char* name, const Tensor& t) const;
  void dtype_is(const char* name, const Tensor& t, DType dtype) const;
  void same_dtype(const char* name, const Tensor& t, const char* like_name, const Tensor& like) const;
  void index(const char* name, const Tensor& t) const;  // i32 or i64

  // Parameters and their gradients: the type of `like`, or f32. In f64 everything is f64.
  void parameter(const char* name, const Tensor& t, const Tensor& like) const;
  // Statistics, losses, scales: f32, or f64 where the op runs in f64.
  void statistic(const char* name, const Tensor& t, const Tensor& like) const;

  // The last dimension has stride 1 (or one element), the other strides are not negative.
  void rows_contiguous(const char* name, const Tensor& t) const;
  void contiguous(const char* name, const Tensor& t) const;
  // No two elements share memory.
  void distinct(const char* name, const Tensor& t) const;
  // Rows_contiguous and distinct: everything an op writes, but for those that take any strides.
  void writable(const char* name, const Tensor& t) const;
  // An output shares no memory with another tensor, or is exactly it when `may_be` is set.
  void apart(const char* out_name, const Tensor& out, const char* name, const Tensor& t, bool may_be = false) const;

  // Every value of a host index tensor is in [0, limit) or equals `except`.
  void indices_below(const char* name, const Tensor& t, int64_t limit, const int64_t* except = nullptr) const;
  // The same where every negative value means "none".
  void indices_below_or_negative(const char* name, const Tensor& t, int64_t limit) const;

  void finite(const char* name, double value) const;
  void in_range(const char* name, double value, double low, double high) const;
  // An enumerator that arrived as a number from outside.
  template <class Enum>
  void known(const char* name, Enum value, Enum last) const {
    in_range(name, static_cast<double>(value), 0, static_cast<double>(last));
  }

  [[noreturn]] void fail(std::string what, std::string expected = {}, std::string got = {}, std::string fix = {}) const;

 private:
  void check_indices(const char* name, const Tensor& t, int64_t limit, const int64_t* except, bool negative) const;

  const char* op_;
  const Context& ctx_;
};

// Whether two tensors share any element. Sees through blocks of one packed buffer with equal strides, else by range.
bool overlap(const Tensor& a, const Tensor& b);

}  // namespace tigon::ops
