#pragma once

#include <vector>

#include "tigon/core/context.hpp"
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

 private:
  Device device_;
  mutable std::vector<Tensor> list_;
};

// The struct that a function of tigon.h takes.
template <class Args>
Args struct_of(int (*)(const tigon_context*, const Args*));
template <auto kFunction>
using ArgsOf = decltype(struct_of(kFunction));

#define TIGON_CONVERT(name, Args) ops::Args convert(const ArgsOf<tigon_##name>& a, const Arguments& in);
TIGON_OPS(TIGON_CONVERT)
#undef TIGON_CONVERT

}  // namespace tigon::capi
