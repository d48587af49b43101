#pragma once

// CPython through its limited API alone, so that one binary serves every Python from 3.10 on (CMakeLists.txt sets the
// version).
#include <Python.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace tigon::python {

// A reference that is given back at the end of its scope.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A Python number as 32 bits; false, with a Python error, where it is none or does not fit.
inline bool read_int32(PyObject* value, const char* name, int32_t* out) {
  const long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred() != nullptr) return false;
  if (number < std::numeric_limits<int32_t>::min() || number > std::numeric_limits<int32_t>::max()) {
    PyErr_Format(PyExc_OverflowError, "'%s' is %lld: expected 32 bits", name, number);
    return false;
  }
  *out = static_cast<int32_t>(number);
  return true;
}

}  // namespace tigon::python
