#pragma once

#include "backend/backend.hpp"

// The functions of the CUDA backend's table.
namespace tigon::cuda {

void rmsnorm_forward(const Context& ctx, const ops::RmsnormForward& args);
void rmsnorm_backward(const Context& ctx, const ops::RmsnormBackward& args);
void add_rmsnorm_forward(const Context& ctx, const ops::AddRmsnormForward& args);
void add_rmsnorm_backward(const Context& ctx, const ops::AddRmsnormBackward& args);
void layernorm_forward(const Context& ctx, const ops::LayernormForward& args);
void layernorm_backward(const Context& ctx, const ops::LayernormBackward& args);
void unary(const Context& ctx, const ops::Unary& args);
void binary(const Context& ctx, const ops::Binary& args);
void reduce(const Context& ctx, const ops::Reduce& args);
void gather(const Context& ctx, const ops::Gather& args);
void scatter_add(const Context& ctx, const ops::ScatterAdd& args);

}  // namespace tigon::cuda
