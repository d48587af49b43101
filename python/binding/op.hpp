#pragma once

#include <cstddef>
#include <span>

#include "tensors.hpp"

namespace tigon::python {

// One argument of a call: where it goes in the op's C struct, and as what.
struct Field {
  enum class Kind { tensor, real, int32, int64 };
  Kind kind;
  TensorUse use;  // of a tensor
  size_t offset;
  const char* name;
};

// One function of the C ABI, as data: Python's positional arguments fill the fields in this order. Where the function
// takes a list of structs, an argument that is a Python list has a value for each of them, and any other is for all.
struct Op {
  const char* name;
  const void* defaults;  // the struct's _INIT
  size_t size;
  int (*run)(const tigon_context* context, const void* args);
  int (*scratch)(const tigon_context* context, const void* args, int64_t* bytes);
  std::span<const Field> fields;
  int (*run_list)(const tigon_context* context, const void* structs, int64_t count) = nullptr;  // then without scratch
};

inline constexpr size_t kLargestArguments = 2048;

std::span<const Op> ops();

// Fills the struct from `args`, gets scratch from torch and runs the op on the current stream of its tensors' device.
// None, or NULL with a Python error set.
PyObject* call(const Op& op, PyObject* const* args, Py_ssize_t count);

}  // namespace tigon::python
