#pragma once

#include "backend/cpu/cpu_backend.hpp"

// The norm that rmsnorm and add_rmsnorm share.
namespace tigon::cpu {

// rmsnorm of x + residual, rounded to x's type and kept in residual_out; of x alone when both are absent.
void rmsnorm_forward_of_sum(const Context& ctx, const ops::RmsnormForward& args, const Tensor& residual,
                            const Tensor& residual_out);

// rmsnorm's backward with dresidual, where present, added to dx.
void rmsnorm_backward_onto(const Context& ctx, const ops::RmsnormBackward& args, const Tensor& dresidual);

}  // namespace tigon::cpu
