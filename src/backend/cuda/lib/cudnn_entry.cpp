// The functions of cuDNN that cudnn-frontend calls, each looked up in libcudnn when first called. So nothing is linked,
// and a machine without cuDNN still opens the backend. They are hidden in our library and shadow nobody else's.
#include <cudnn_graph.h>
#include <dlfcn.h>

#include <cstdlib>

#include "backend/cuda/lib/cudnn_entry.hpp"

namespace {

void* library() {
  static void* const opened = [] {
    const char* named = std::getenv("TIGON_CUDNN_LIBRARY");
    return dlopen(named != nullptr ? named : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  }();
  return opened;
}

template <class Function>
Function* look_up(Function*, const char* name) {
  return library() != nullptr ? reinterpret_cast<Function*>(dlsym(library(), name)) : nullptr;
}

}  // namespace

bool tigon::cuda::cudnn_opens() { return library() != nullptr; }

// Declares `found`, the real function of that name, or returns `otherwise`.
#define TIGON_FIND(name, otherwise)                     \
  static auto* const found = look_up(&(name), (#name)); \
  if (found == nullptr) return otherwise

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  TIGON_FIND(cudnnCreate, CUDNN_STATUS_NOT_INITIALIZED);
  return found(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  TIGON_FIND(cudnnSetStream, CUDNN_STATUS_NOT_INITIALIZED);
  return found(handle, stream);
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  TIGON_FIND(cudnnGetStream, CUDNN_STATUS_NOT_INITIALIZED);
  return found(handle, stream);
}

size_t cudnnGetVersion() {
  TIGON_FIND(cudnnGetVersion, 0);
  return found();
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  TIGON_FIND(cudnnGetErrorString, "cuDNN is not there");
  return found(status);
}

void cudnnGetLastErrorString(char* message, size_t size) {
  TIGON_FIND(cudnnGetLastErrorString, void());
  found(message, size);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  TIGON_FIND(cudnnBackendCreateDescriptor, CUDNN_STATUS_NOT_INITIALIZED);
  return found(type, descriptor);
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  TIGON_FIND(cudnnBackendDestroyDescriptor, CUDNN_STATUS_NOT_INITIALIZED);
  return found(descriptor);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  TIGON_FIND(cudnnBackendFinalize, CUDNN_STATUS_NOT_INITIALIZED);
  return found(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  TIGON_FIND(cudnnBackendSetAttribute, CUDNN_STATUS_NOT_INITIALIZED);
  return found(descriptor, name, type, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t asked, int64_t* count,
                                       void* elements) {
  TIGON_FIND(cudnnBackendGetAttribute, CUDNN_STATUS_NOT_INITIALIZED);
  return found(descriptor, name, type, asked, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  TIGON_FIND(cudnnBackendExecute, CUDNN_STATUS_NOT_INITIALIZED);
  return found(handle, plan, variant_pack);
}

#if CUDNN_VERSION >= 92300
cudnnStatus_t cudnnGetExecutionPlanWorkspaceSize(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                                 cudnnBackendDescriptor_t variant_pack, size_t* bytes) {
  TIGON_FIND(cudnnGetExecutionPlanWorkspaceSize, CUDNN_STATUS_NOT_INITIALIZED);
  return found(handle, plan, variant_pack, bytes);
}
#endif

}  // extern "C"
