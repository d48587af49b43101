// A library that looks like the CUDA backend of another build. Its table must never be read.
#include <cstdlib>

#include "backend/backend.hpp"

#define EXPORTED __attribute__((visibility("default")))

extern "C" {
#ifdef TIGON_SAYS_WHO
EXPORTED tigon::BackendIdentity tigon_cuda_identity() {
  return {.version = TIGON_SAYS_WHO, .table_bytes = sizeof(tigon::Backend) - 8, .layout = 0};
}
#endif
EXPORTED const tigon::Backend* tigon_cuda_backend() { std::abort(); }
}
