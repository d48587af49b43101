#include "torch_link.hpp"

namespace tigon::python {

namespace {

// NULL, without a Python error, where the table is of a version not known here or cannot view tensors.
const dlpack::Exchange* usable_exchange(PyObject* capsule) {
  const auto* table = static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  if (table == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const dlpack::ExchangeHeader* header = &table->header;
  while (header != nullptr && header->major != dlpack::kMajorVersion) header = header->previous;
  const auto* usable = reinterpret_cast<const dlpack::Exchange*>(header);
  if (usable == nullptr || usable->view == nullptr || usable->current_stream == nullptr) return nullptr;
  return usable->allocate != nullptr ? usable : nullptr;
}

void replace(PyObject** slot, PyObject* object) {
  Py_INCREF(object);
  Py_XDECREF(*slot);
  *slot = object;
}

}  // namespace

TorchLink& torch_link() {
  static TorchLink link;
  return link;
}

PyObject* connect(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 7 || !PyType_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "connect expects 7 arguments, the first of them torch.Tensor");
    return nullptr;
  }
  TorchLink& link = torch_link();
  Py_INCREF(args[0]);
  Py_XDECREF(reinterpret_cast<PyObject*>(link.tensor_type));
  link.tensor_type = reinterpret_cast<PyTypeObject*>(args[0]);
  link.exchange = args[1] == Py_None ? nullptr : usable_exchange(args[1]);
  replace(&link.dtypes, args[2]);
  replace(&link.empty_bytes, args[3]);
  replace(&link.current_stream, args[4]);
  replace(&link.num_threads, args[5]);
  replace(&link.out_of_memory_error, args[6]);
  return PyBool_FromLong(link.exchange != nullptr);
}

}  // namespace tigon::python
