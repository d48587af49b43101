#pragma once

#include "exchange.hpp"
#include "python.hpp"

namespace tigon::python {

// What the package hands over at import (tigon/_torch.py), so that nothing here is compiled against torch.
struct TorchLink {
  PyTypeObject* tensor_type = nullptr;
  const dlpack::Exchange* exchange = nullptr;  // NULL: tensors are read through their Python attributes
  PyObject* dtypes = nullptr;                  // {torch.dtype: tigon_dtype}
  PyObject* empty_bytes = nullptr;             // (bytes, CUDA index or −1 for the CPU) -> uint8 tensor
  PyObject* current_stream = nullptr;          // (CUDA index) -> cudaStream_t as a number
  PyObject* num_threads = nullptr;             // () -> torch's number of CPU threads
  PyObject* out_of_memory_error = nullptr;
};

// The one link of the process.
TorchLink& torch_link();

// connect(tensor_type, exchange capsule or None, dtypes, empty_bytes, current_stream, num_threads, out_of_memory_error)
PyObject* connect(PyObject* self, PyObject* const* args, Py_ssize_t count);

}  // namespace tigon::python
