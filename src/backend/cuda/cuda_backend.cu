// The entries of the plug-in: who it is, and its table of ops.
#include "backend/backend.hpp"
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/services.cuh"

extern "C" __attribute__((visibility("default"))) tigon::BackendIdentity tigon_cuda_identity() {
  return tigon::backend_identity();
}

extern "C" __attribute__((visibility("default"))) const tigon::Backend* tigon_cuda_backend() {
  using namespace tigon::cuda;
  static const tigon::Backend table = {.name = "cuda", .services = &services(), TIGON_BACKEND_OPS(TIGON_TABLE_ENTRY)};
  return &table;
}
