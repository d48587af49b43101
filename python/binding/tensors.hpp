#pragma once

#include <vector>

#include "python.hpp"
#include "tigon/tigon.h"

namespace tigon::python {

struct Place {
  int32_t device = TIGON_CPU;  // tigon_device
  int32_t index = 0;
  bool operator==(const Place&) const = default;
};

struct TensorView {
  tigon_tensor tensor{};
  Place place;
};

// How an op takes a tensor: with leading dimensions merged until `rank` are left ([batch, seq, hidden] as
// [tokens, hidden]; a scalar as [1]), and its last dimension without gaps.
struct TensorUse {
  int rank;
  bool written;
};

// A torch tensor as an op takes it. A tensor that is only read and has the wrong strides is copied, and the copy put
// into `copies` to live until the call is over. False with a Python error set when it cannot be had.
bool view_tensor(PyObject* object, const char* name, TensorUse use, TensorView* out, std::vector<Ref>* copies);

}  // namespace tigon::python
