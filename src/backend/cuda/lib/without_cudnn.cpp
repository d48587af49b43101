// Stands in for attention_cudnn.cpp where cuDNN's headers were not found.
#include "backend/cuda/lib/attention_cudnn.hpp"

namespace tigon::cuda {

namespace {
const char* const kWhyNot = "built without cuDNN";
}

CudnnAnswer ask_cudnn(const Context&, const ops::AttentionForward&) { return {.why_not = kWhyNot}; }
CudnnAnswer ask_cudnn(const Context&, const ops::AttentionBackward&, bool) { return {.why_not = kWhyNot}; }
std::string run_cudnn(const Context&, const ops::AttentionForward&, void*) { return kWhyNot; }
std::string run_cudnn(const Context&, const ops::AttentionBackward&, void*) { return kWhyNot; }

}  // namespace tigon::cuda
