#pragma once

#include "backend/backend.hpp"

// What rmsnorm, add_rmsnorm and layernorm share.
namespace tigon::cuda {

struct NormForward {
  bool layer = false;  // layernorm: about the mean, with a bias
  Tensor x{};
  Tensor residual{};      // added to x first; the sum goes to residual_out
  Tensor residual_out{};  // present with residual
  Tensor weight{};
  Tensor bias{};
  Tensor y{};
  Tensor mean{};
  Tensor rstd{};
  double eps = 0;
  double offset = 0;
  bool round_early = false;
};
void norm_forward(const Context& ctx, const NormForward& args);

struct NormBackward {
  bool layer = false;
  Tensor dy{};
  Tensor dresidual{};  // added to dx
  Tensor x{};
  Tensor weight{};
  Tensor mean{};
  Tensor rstd{};
  Tensor dx{};
  Tensor dweight{};
  Tensor dbias{};
  double offset = 0;
  bool round_early = false;
  bool accumulate = false;
};
void norm_backward(const Context& ctx, const NormBackward& args);

}  // namespace tigon::cuda
