#include "tensors.hpp"

#include "torch_link.hpp"

namespace tigon::python {

namespace {

constexpr int kMaxTorchRank = 64;

// A tensor of any rank, before its dimensions are merged.
struct RawTensor {
  void* data = nullptr;
  int32_t dtype = -1;
  Place place;
  int rank = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int64_t own_sizes[kMaxTorchRank];  // where torch does not lend its own
  int64_t own_strides[kMaxTorchRank];
};

int32_t dtype_of(const dlpack::Tensor& t) {
  if (t.lanes != 1) return -1;
  switch (t.code * 256 + t.bits) {
    case dlpack::kFloat * 256 + 32: return TIGON_F32;
    case dlpack::kFloat * 256 + 16: return TIGON_F16;
    case dlpack::kFloat * 256 + 64: return TIGON_F64;
    case dlpack::kBfloat * 256 + 16: return TIGON_BF16;
    case dlpack::kInt * 256 + 32: return TIGON_I32;
    case dlpack::kInt * 256 + 64: return TIGON_I64;
    case dlpack::kUInt * 256 + 8: return TIGON_U8;
    default: return -1;
  }
}

// False, without a Python error, for a tensor that the table cannot show or that is on another device.
bool read_by_exchange(PyObject* object, RawTensor* out) {
  const dlpack::Exchange* exchange = torch_link().exchange;
  if (exchange == nullptr) return false;
  dlpack::Tensor t{};
  if (exchange->view(object, &t) != 0) {
    PyErr_Clear();
    return false;
  }
  if (t.device_type == dlpack::kCpu || t.device_type == dlpack::kCudaHost) {
    out->place = {TIGON_CPU, 0};
  } else if (t.device_type == dlpack::kCuda) {
    out->place = {TIGON_CUDA, t.device_id};
  } else {
    return false;
  }
  out->data = static_cast<char*>(t.data) + t.byte_offset;
  out->dtype = dtype_of(t);
  out->rank = t.ndim;
  out->sizes = t.shape;
  out->strides = t.strides;
  return true;
}

bool read_numbers(PyObject* sequence, int rank, int64_t* numbers) {
  for (int d = 0; d < rank; ++d) {
    const Ref item(PySequence_GetItem(sequence, d));
    if (!item) return false;
    numbers[d] = PyLong_AsLongLong(item.get());
    if (numbers[d] == -1 && PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

bool read_place(PyObject* object, const char* name, Place* place) {
  const Ref device(PyObject_GetAttrString(object, "device"));
  if (!device) return false;
  const Ref type(PyObject_GetAttrString(device.get(), "type"));
  if (!type) return false;
  if (PyUnicode_CompareWithASCIIString(type.get(), "cpu") == 0) {
    *place = {TIGON_CPU, 0};
    return true;
  }
  if (PyUnicode_CompareWithASCIIString(type.get(), "cuda") != 0) {
    PyErr_Format(PyExc_NotImplementedError, "'%s' is on device %S: expected a CPU or CUDA tensor", name, device.get());
    return false;
  }
  const Ref index(PyObject_GetAttrString(device.get(), "index"));
  if (!index) return false;
  place->device = TIGON_CUDA;
  return read_int32(index.get(), "device index", &place->index);
}

bool read_by_attributes(PyObject* object, const char* name, RawTensor* out) {
  if (!read_place(object, name, &out->place)) return false;
  const Ref shape(PyObject_GetAttrString(object, "shape"));
  if (!shape) return false;
  const Ref strides(PyObject_CallMethod(object, "stride", nullptr));
  if (!strides) return false;
  const Ref dtype(PyObject_GetAttrString(object, "dtype"));
  if (!dtype) return false;
  const Ref pointer(PyObject_CallMethod(object, "data_ptr", nullptr));
  if (!pointer) {
    PyErr_Format(PyExc_NotImplementedError,
                 "'%s' has no memory that could be read. Under vmap neither tigon's ops nor their gradients work "
                 "(is_grads_batched=True, vectorize=True): loop over the batch instead.",
                 name);
    return false;
  }
  const Py_ssize_t rank = PySequence_Size(shape.get());
  if (rank < 0) return false;
  if (rank > kMaxTorchRank) {
    PyErr_Format(PyExc_ValueError, "'%s' has %zd dimensions: expected at most %d", name, rank, kMaxTorchRank);
    return false;
  }
  out->rank = static_cast<int>(rank);
  out->data = PyLong_AsVoidPtr(pointer.get());
  if (out->data == nullptr && PyErr_Occurred() != nullptr) return false;
  if (!read_numbers(shape.get(), out->rank, out->own_sizes)) return false;
  if (!read_numbers(strides.get(), out->rank, out->own_strides)) return false;
  out->sizes = out->own_sizes;
  out->strides = out->own_strides;
  PyObject* number = PyDict_GetItem(torch_link().dtypes, dtype.get());
  return number == nullptr || read_int32(number, "dtype", &out->dtype);
}

bool read(PyObject* object, const char* name, RawTensor* out) {
  if (PyType_IsSubtype(Py_TYPE(object), torch_link().tensor_type) == 0) {
    PyErr_Format(PyExc_TypeError, "'%s' is not a tensor: expected torch.Tensor, got %R", name, Py_TYPE(object));
    return false;
  }
  if (!read_by_exchange(object, out) && !read_by_attributes(object, name, out)) return false;
  if (out->dtype >= 0) return true;
  const Ref dtype(PyObject_GetAttrString(object, "dtype"));
  if (!dtype) return false;
  PyErr_Format(
      PyExc_NotImplementedError,
      "'%s' is of %S: expected torch.float32, bfloat16, float16, or on the CPU float64 (indices: int32, int64)", name,
      dtype.get());
  return false;
}

// Merges the leading dimensions of `raw` into one; false where its strides do not allow it.
bool merge_leading(const RawTensor& raw, int rank, tigon_tensor* out) {
  int64_t elements = 1;
  for (int d = 0; d < raw.rank; ++d) elements *= raw.sizes[d];
  const int merged = raw.rank > rank ? raw.rank - rank + 1 : 0;  // how many become one
  const int missing = raw.rank < rank ? rank - raw.rank : 0;     // how many of size 1 come before
  int filled = 0;
  for (; filled < missing; ++filled) out->sizes[filled] = 1, out->strides[filled] = 0;
  if (merged > 0) {
    int64_t size = 1, stride = 0;
    for (int d = merged - 1; d >= 0; --d) {
      if (raw.sizes[d] != 1 && size > 1 && elements != 0 && raw.strides[d] != stride * size) return false;
      if (raw.sizes[d] != 1 && size == 1) stride = raw.strides[d];
      size *= raw.sizes[d];
    }
    out->sizes[filled] = size, out->strides[filled] = stride, ++filled;
  }
  for (int d = merged; d < raw.rank; ++d, ++filled)
    out->sizes[filled] = raw.sizes[d], out->strides[filled] = raw.strides[d];
  if (elements == 0) {  // strides lead nowhere, and some of torch's would look like gaps
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      out->strides[d] = stride;
      stride *= out->sizes[d] > 0 ? out->sizes[d] : 1;
    }
  }
  return out->sizes[rank - 1] <= 1 || out->strides[rank - 1] == 1;
}

}  // namespace

bool view_tensor(PyObject* object, const char* name, TensorUse use, TensorView* out, std::vector<Ref>* copies) {
  RawTensor raw;
  if (!read(object, name, &raw)) return false;
  if (!merge_leading(raw, use.rank, &out->tensor)) {
    if (use.written) {
      PyErr_Format(PyExc_ValueError,
                   "'%s' is written to, but its strides do not allow it: expected a contiguous tensor. "
                   "Pass one, or ask for a result beside it.",
                   name);
      return false;
    }
    copies->emplace_back(PyObject_CallMethod(object, "contiguous", nullptr));
    PyObject* copy = copies->back().get();
    if (copy == nullptr || !read(copy, name, &raw)) return false;
    (void)merge_leading(raw, use.rank, &out->tensor);
  }
  out->tensor.data = raw.data;
  out->tensor.dtype = raw.dtype;
  out->tensor.rank = use.rank;
  out->place = raw.place;
  return true;
}

}  // namespace tigon::python
