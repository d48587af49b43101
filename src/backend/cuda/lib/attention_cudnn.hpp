#pragma once

#include <string>

#include "tigon/ops/attention.hpp"

// Attention by cuDNN's fused graphs, which use what the chip has beyond our own kernels. cuDNN is opened at run time.
namespace tigon::cuda {

// What cuDNN makes of a call, by all but its addresses, which are not known when scratch is booked. The same call
// always gets the same answer. A plan is built when a call is first seen, in measure mode too, because the plan knows
// the size of its workspace.
struct CudnnAnswer {
  std::string why_not;  // empty where it has a plan
  int64_t workspace = 0;
};
CudnnAnswer ask_cudnn(const Context& ctx, const ops::AttentionForward& args);
// The deterministic graph (cuDNN 9.19, up to Hopper) holds seq×seq values per head; the one that may race does not.
// Unless `any_workspace`, a workspace that is not linear in seq counts as unsupported.
CudnnAnswer ask_cudnn(const Context& ctx, const ops::AttentionBackward& args, bool any_workspace);

// Runs what it has a plan for. Where the addresses do not fit nothing is done, and the reason is returned.
std::string run_cudnn(const Context& ctx, const ops::AttentionForward& args, void* workspace);
std::string run_cudnn(const Context& ctx, const ops::AttentionBackward& args, void* workspace);

}  // namespace tigon::cuda
