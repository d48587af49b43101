#pragma once

#include <initializer_list>

#include "backend/backend.hpp"
#include "tigon/core/scope.hpp"

namespace tigon::ops {

// The backend for tensors of this type on this device: CUDA's plug-in for a GPU, the plain reference for f64, the SIMD
// backend for everything else. Throws Error, saying what to install or build, when there is none.
const Backend& backend_for(Device device, DType dtype);

// Runs one op of the table:
//   route(ctx, args, args.x.dtype, &Backend::rmsnorm_forward, "rmsnorm_forward", {&args.y, &args.rstd})
// `outputs` is all that the op writes. Where none of it has an element the backend is not called: it would walk over
// rows that are empty, and there may be 2^31 of them.
template <class Args>
void route(const Context& ctx, const Args& args, DType dtype, OpFunction<Args> Backend::*member, const char* op,
           std::initializer_list<const Tensor*> outputs);

void throw_assumed(const char* op);
// Whether any of them is there and has an element.
bool any_elements(std::initializer_list<const Tensor*> tensors) noexcept;

template <class Args>
void route(const Context& ctx, const Args& args, DType dtype, OpFunction<Args> Backend::*member, const char* op,
           std::initializer_list<const Tensor*> outputs) {
  if (ctx.device.assumed() && !ctx.measuring()) throw_assumed(op);
  const Backend& backend = backend_for(ctx.device, dtype);
  const Scope scope(ctx, op);
  if (any_elements(outputs)) (backend.*member)(ctx, args);
}

}  // namespace tigon::ops
