#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/core/error.hpp"
#include "tigon/ops/all.hpp"
#include "tigon/tigon.h"

// C argument structs into their C++ twins, field by field. Nothing is trusted: ranks are checked here, because they
// index arrays; the rest is checked by the ops.
namespace tigon::capi {

class Arguments {
 public:
  explicit Arguments(Device device) : device_(device) {}

  Tensor tensor(const tigon_tensor& t) const;
  // Valid as long as this object.
  std::span<const Tensor> tensors(const tigon_tensor* list, int64_t count) const;
  // The same. What stands in the first struct's size is how far they are apart.
  std::span<const ops::Adamw> updates(const tigon_adamw_args* list, int64_t count) const;

 private:
  Device device_;
  mutable std::vector<Tensor> list_;
  mutable std::vector<ops::Adamw> updates_;
};

// The struct that a function of tigon.h takes.
template <class Args>
Args struct_of(int (*)(const tigon_context*, const Args*));
template <auto kFunction>
using ArgsOf = decltype(struct_of(kFunction));

// A caller's struct as this library knows it: an older, shorter one is padded with zeros, a newer one is refused.
template <class T>
T read_struct(const T* from, const char* what) {
  uint32_t size = 0;
  if (from != nullptr) std::memcpy(&size, from, sizeof(size));
  if (size < sizeof(uint32_t) || size > sizeof(T)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = what,
                 .what = from == nullptr ? "the pointer is NULL" : "struct_size does not fit this library",
                 .expected = "a struct started from its _INIT macro, at most " + std::to_string(sizeof(T)) + " bytes",
                 .got = std::to_string(size)});
  }
  T copy{};
  std::memcpy(&copy, from, size);
  return copy;
}

#define TIGON_CONVERT(name, Args) ops::Args convert(const ArgsOf<tigon_##name>& a, const Arguments& in);
TIGON_OPS(TIGON_CONVERT)
#undef TIGON_CONVERT

}  // namespace tigon::capi
