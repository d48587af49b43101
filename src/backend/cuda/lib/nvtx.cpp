// NVTX is headers alone: what listens is loaded by the tool that wants to.
#include "backend/cuda/lib/tracing.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace tigon::cuda {

void push_range(const char* name) { (void)nvtxRangePushA(name); }
void pop_range() noexcept { (void)nvtxRangePop(); }

}  // namespace tigon::cuda
#else
#include "tigon/core/error.hpp"

namespace tigon::cuda {

void push_range(const char*) {
  throw Error(ErrorCode::unsupported, {.where = "--nvtx",
                                       .what = "this build has no NVTX: its CUDA toolkit lacks nvtx3/nvToolsExt.h",
                                       .fix = "Build with a toolkit that has it, or leave --nvtx out."});
}
void pop_range() noexcept {}

}  // namespace tigon::cuda
#endif
