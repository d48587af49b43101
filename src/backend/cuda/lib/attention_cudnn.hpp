#pragma once

#include <string>

#include "tigon/ops/attention.hpp"

// Attention by cuDNN's fused graphs, which use what the chip has beyond our own kernels. cuDNN is opened at run time.
namespace tigon::cuda {

// Books scratch and, unless ctx is measuring, launches. Where cuDNN is absent or has no graph for this call, nothing is
// done and the reason is returned; the same call always gets the same answer. A plan is built when a call is first
// seen, in measure mode too, because the plan knows the size of its workspace.
std::string attention_forward_cudnn(const Context& ctx, const ops::AttentionForward& args);
// The deterministic graph (cuDNN 9.19, up to Hopper) holds seq×seq values per head; the one that may race does not.
// Unless `any_workspace`, a workspace that is not linear in seq counts as unsupported.
std::string attention_backward_cudnn(const Context& ctx, const ops::AttentionBackward& args, bool any_workspace);

}  // namespace tigon::cuda
