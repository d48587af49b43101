#include "ops/route.hpp"

#include <algorithm>

#include "backend/cpu/cpu_backend.hpp"
#include "backend/reference/reference_backend.hpp"
#include "ops/cuda_plugin.hpp"
#include "tigon/core/error.hpp"

namespace tigon::ops {

const Backend& backend_for(Device device, DType dtype) {
  if (device.kind == DeviceKind::cuda) return cuda_plugin(device);
  return dtype == DType::f64 ? reference::backend() : cpu::backend();
}

void throw_assumed(const char* op) {
  throw Error(ErrorCode::unsupported, {.where = op,
                                       .what = "this GPU is only assumed, and nothing can run on it",
                                       .fix = "Use it to measure, and cuda or cpu to run."});
}

bool any_elements(std::initializer_list<const Tensor*> tensors) noexcept {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor* t) { return t->elements() > 0; });
}

}  // namespace tigon::ops
