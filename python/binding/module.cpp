// The extension module tigon._native: the C ABI's ops as Python functions over torch tensors.
#include <array>
#include <utility>

#include "op.hpp"
#include "torch_link.hpp"

namespace tigon::python {

namespace {

constexpr size_t kMostOps = 64;

template <size_t Index>
PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return call(ops()[Index], args, count);
}

using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

template <size_t... Index>
constexpr std::array<FastFunction, kMostOps> entries(std::index_sequence<Index...>) {
  return {&entry<Index>...};
}

PyMethodDef method(const char* name, FastFunction function, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL, doc};
}

PyMethodDef* methods() {
  static std::array<PyMethodDef, kMostOps + 2> all{};  // a zero entry ends it
  const auto functions = entries(std::make_index_sequence<kMostOps>());
  size_t filled = 0;
  all[filled++] = method("connect", &connect, "Hands over torch's types and functions; called once, by tigon.");
  for (const Op& op : ops()) {
    all[filled] = method(op.name, functions[filled - 1], nullptr);
    ++filled;
  }
  return all.data();
}

}  // namespace

}  // namespace tigon::python

PyMODINIT_FUNC PyInit__native() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "tigon._native",
                                   nullptr,
                                   -1,
                                   tigon::python::methods(),
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  PyObject* module = PyModule_Create(&definition);
  if (module != nullptr && PyModule_AddStringConstant(module, "version", tigon_version()) != 0) return nullptr;
  return module;
}
