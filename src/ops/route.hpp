#pragma once

#include "backend/backend.hpp"

namespace tigon::ops {

// The backend for tensors of this type on this device: CUDA's plug-in for a GPU, the plain reference for f64, the SIMD
// backend for everything else. Throws Error, saying what to install or build, when there is none.
const Backend& backend_for(Device device, DType dtype);

// Runs one op of the table: `route(ctx, args, args.x.dtype, &Backend::rmsnorm_forward, "rmsnorm_forward")`.
template <class Args>
void route(const Context& ctx, const Args& args, DType dtype, OpFunction<Args> Backend::*member, const char* op);

void throw_missing(const Backend& backend, const char* op);
void throw_assumed(const char* op);

template <class Args>
void route(const Context& ctx, const Args& args, DType dtype, OpFunction<Args> Backend::*member, const char* op) {
  if (ctx.device.assumed() && !ctx.measuring()) throw_assumed(op);
  const Backend& backend = backend_for(ctx.device, dtype);
  if (backend.*member == nullptr) throw_missing(backend, op);
  (backend.*member)(ctx, args);
}

}  // namespace tigon::ops
