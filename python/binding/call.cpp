#include <cstddef>
#include <cstring>
#include <vector>

#include "huge_pages.hpp"
#include "op.hpp"
#include "torch_link.hpp"

namespace tigon::python {

namespace {

PyObject* raise_status(int status) {
  PyObject* type = PyExc_RuntimeError;
  if (status == TIGON_INVALID_ARGUMENT) type = PyExc_ValueError;
  if (status == TIGON_UNSUPPORTED) type = PyExc_NotImplementedError;
  if (status == TIGON_OUT_OF_MEMORY) type = torch_link().out_of_memory_error;
  PyErr_SetString(type, tigon_last_error());
  return nullptr;
}

const char* device_name(const Place& place) { return place.device == TIGON_CUDA ? "cuda" : "cpu"; }

// What a call gathers from its arguments beside the op's struct.
struct Gathered {
  Place place;
  const char* first_tensor = nullptr;
  std::vector<Ref> copies;
  bool fresh = true;  // what is written was allocated just before
};

// From the first element to the end of the last.
int64_t extent_bytes(const tigon_tensor& t) {
  int64_t last = 0;
  for (int d = 0; d < t.rank; ++d) {
    if (t.sizes[d] == 0) return 0;
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  switch (t.dtype) {
    case TIGON_U8: return last + 1;
    case TIGON_BF16:
    case TIGON_F16: return (last + 1) * 2;
    case TIGON_F64:
    case TIGON_I64: return (last + 1) * 8;
    default: return (last + 1) * 4;
  }
}

bool fill_tensor(const Field& field, PyObject* value, char* slot, Gathered* gathered) {
  if (value == Py_None) return true;  // the defaults have it absent
  TensorView view;
  if (!view_tensor(value, field.name, field.use, &view, &gathered->copies)) return false;
  if (gathered->first_tensor == nullptr) {
    gathered->first_tensor = field.name;
    gathered->place = view.place;
  } else if (view.place != gathered->place) {
    PyErr_Format(PyExc_ValueError, "'%s' is on %s:%d, but '%s' is on %s:%d: expected all tensors on one device",
                 field.name, device_name(view.place), view.place.index, gathered->first_tensor,
                 device_name(gathered->place), gathered->place.index);
    return false;
  }
  if (gathered->fresh && field.use.written && view.place.device == TIGON_CPU)
    want_huge_pages(view.tensor.data, extent_bytes(view.tensor));
  std::memcpy(slot, &view.tensor, sizeof(view.tensor));
  return true;
}

bool fill(const Field& field, PyObject* value, char* slot, Gathered* gathered) {
  switch (field.kind) {
    case Field::Kind::tensor: return fill_tensor(field, value, slot, gathered);
    case Field::Kind::real: {
      const double number = PyFloat_AsDouble(value);
      std::memcpy(slot, &number, sizeof(number));
      break;
    }
    case Field::Kind::int32: {
      int32_t number = 0;
      if (!read_int32(value, field.name, &number)) return false;
      std::memcpy(slot, &number, sizeof(number));
      break;
    }
    case Field::Kind::int64: {
      const int64_t number = PyLong_AsLongLong(value);
      std::memcpy(slot, &number, sizeof(number));
      break;
    }
  }
  return PyErr_Occurred() == nullptr;
}

bool set_stream(tigon_context* context) {
  const TorchLink& link = torch_link();
  if (link.exchange != nullptr) {
    if (link.exchange->current_stream(dlpack::kCuda, context->device_index, &context->stream) == 0) return true;
    if (PyErr_Occurred() == nullptr) {
      PyErr_Format(PyExc_RuntimeError, "torch has no current stream for cuda:%d", context->device_index);
    }
    return false;
  }
  const Ref stream(PyObject_CallFunction(link.current_stream, "i", context->device_index));
  if (!stream) return false;
  context->stream = PyLong_AsVoidPtr(stream.get());
  return context->stream != nullptr || PyErr_Occurred() == nullptr;
}

bool set_threads(tigon_context* context) {
  const Ref threads(PyObject_CallObject(torch_link().num_threads, nullptr));
  return threads && read_int32(threads.get(), "threads", &context->threads);
}

// Scratch for one call, from torch: its allocator keeps a GPU's memory apart from other streams, and from other graphs
// when recording.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (owned_ != nullptr && owned_->deleter != nullptr) owned_->deleter(owned_);
  }

  bool give(tigon_context* context, int64_t bytes) {
    const bool cuda = context->device == TIGON_CUDA;
    const int32_t index = cuda ? context->device_index : 0;
    context->scratch =
        torch_link().exchange != nullptr ? by_exchange(bytes, cuda ? dlpack::kCuda : dlpack::kCpu, index) : nullptr;
    // Python's way also where the other has failed: it knows how torch says that memory is short.
    if (context->scratch == nullptr) context->scratch = by_python(bytes, cuda ? index : -1);
    context->scratch_bytes = bytes;
    if (!cuda) want_huge_pages(context->scratch, bytes);
    return context->scratch != nullptr;
  }

 private:
  void* by_exchange(int64_t bytes, dlpack::DeviceType device, int32_t index) {
    dlpack::Tensor wanted{};
    wanted.device_type = device;
    wanted.device_id = index;
    wanted.ndim = 1;
    wanted.code = dlpack::kUInt;
    wanted.bits = 8;
    wanted.lanes = 1;
    wanted.shape = &bytes;
    const auto ignore_error = [](void*, const char*, const char*) {};
    if (torch_link().exchange->allocate(&wanted, &owned_, nullptr, ignore_error) != 0 || owned_ == nullptr) {
      owned_ = nullptr;
      PyErr_Clear();
      return nullptr;
    }
    return static_cast<char*>(owned_->tensor.data) + owned_->tensor.byte_offset;
  }

  void* by_python(int64_t bytes, int32_t cuda_index) {
    tensor_ = Ref(PyObject_CallFunction(torch_link().empty_bytes, "Li", static_cast<long long>(bytes), cuda_index));
    TensorView view;
    std::vector<Ref> no_copies;
    if (!tensor_ || !view_tensor(tensor_.get(), "scratch", {1, true}, &view, &no_copies)) return nullptr;
    if (view.tensor.data == nullptr) {  // as of a fake tensor
      PyErr_Format(PyExc_RuntimeError, "torch gave no memory for %lld bytes of scratch", static_cast<long long>(bytes));
    }
    return view.tensor.data;
  }

  dlpack::OwnedTensor* owned_ = nullptr;
  Ref tensor_;
};

// How much scratch a call needs. Models repeat themselves, and asking the library would check every argument twice, so
// each thread remembers the last answer for each op. Scratch does not depend on addresses.
int scratch_bytes(const Op& op, const tigon_context& context, const char* arguments, int64_t* bytes) {
  struct Answer {
    std::vector<char> question;
    int64_t bytes = 0;
  };
  static thread_local std::vector<Answer> answers(ops().size());
  Answer& last = answers[static_cast<size_t>(&op - ops().data())];
  static thread_local std::vector<char> question;
  question.assign(arguments, arguments + op.size);
  for (const Field& field : op.fields) {
    if (field.kind == Field::Kind::tensor) {
      std::memset(question.data() + field.offset + offsetof(tigon_tensor, data), 0, sizeof(void*));
    }
  }
  for (const int32_t number : {context.device, context.device_index, context.threads}) {
    const auto* first = reinterpret_cast<const char*>(&number);
    question.insert(question.end(), first, first + sizeof(number));
  }
  if (question != last.question) {
    last.question.clear();
    const int status = op.scratch(&context, arguments, &last.bytes);
    if (status != TIGON_OK) return status;
    last.question = question;
  }
  *bytes = last.bytes;
  return TIGON_OK;
}

// The stream or the threads of where the tensors are.
bool set_context(const Place& place, tigon_context* context) {
  context->struct_size = sizeof(*context);
  context->device = place.device;
  context->device_index = place.index;
  return place.device == TIGON_CUDA ? set_stream(context) : set_threads(context);
}

template <class Body>
int run(const tigon_context& context, const Body& body) {
  if (context.device == TIGON_CUDA)
    return body();  // only launches: less time than handing the interpreter over and back
  int status = TIGON_OK;
  Py_BEGIN_ALLOW_THREADS;
  status = body();
  Py_END_ALLOW_THREADS;
  return status;
}

PyObject* call_list(const Op& op, PyObject* const* args) {
  if (PyList_Check(args[0]) == 0)
    return PyErr_Format(PyExc_TypeError, "%s: '%s' is no list", op.name, op.fields[0].name);
  const Py_ssize_t count = PyList_Size(args[0]);
  for (size_t f = 0; f < op.fields.size(); ++f) {
    if (PyList_Check(args[f]) == 0 || PyList_Size(args[f]) == count) continue;
    return PyErr_Format(PyExc_ValueError, "%s: '%s' has %zd values, and '%s' has %zd", op.name, op.fields[f].name,
                        PyList_Size(args[f]), op.fields[0].name, count);
  }
  if (count == 0) Py_RETURN_NONE;
  std::vector<char> structs(static_cast<size_t>(count) * op.size);
  Gathered gathered;
  gathered.fresh = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    char* const one = structs.data() + static_cast<size_t>(i) * op.size;
    std::memcpy(one, op.defaults, op.size);
    for (size_t f = 0; f < op.fields.size(); ++f) {
      PyObject* const value = PyList_Check(args[f]) != 0 ? PyList_GetItem(args[f], i) : args[f];
      if (!fill(op.fields[f], value, one + op.fields[f].offset, &gathered)) return nullptr;
    }
  }
  tigon_context context{};
  if (!set_context(gathered.place, &context)) return nullptr;
  const int status = run(context, [&] { return op.run_list(&context, structs.data(), count); });
  if (status != TIGON_OK) return raise_status(status);
  Py_RETURN_NONE;
}

}  // namespace

PyObject* call(const Op& op, PyObject* const* args, Py_ssize_t count) {
  if (torch_link().tensor_type == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "tigon._native is not connected to torch: import tigon, not tigon._native");
    return nullptr;
  }
  if (static_cast<size_t>(count) != op.fields.size()) {
    return PyErr_Format(PyExc_TypeError, "%s expects %zu arguments, got %zd", op.name, op.fields.size(), count);
  }
  if (op.run_list != nullptr) return call_list(op, args);
  alignas(std::max_align_t) char arguments[kLargestArguments];
  std::memcpy(arguments, op.defaults, op.size);
  Gathered gathered;
  for (size_t i = 0; i < op.fields.size(); ++i) {
    const Field& field = op.fields[i];
    if (!fill(field, args[i], arguments + field.offset, &gathered)) return nullptr;
  }
  tigon_context context{};
  if (!set_context(gathered.place, &context)) return nullptr;

  int64_t bytes = 0;
  int status = scratch_bytes(op, context, arguments, &bytes);
  if (status != TIGON_OK) return raise_status(status);
  Scratch scratch;
  if (bytes > 0 && !scratch.give(&context, bytes)) return nullptr;
  status = run(context, [&] { return op.run(&context, arguments); });
  if (status != TIGON_OK) return raise_status(status);
  Py_RETURN_NONE;
}

}  // namespace tigon::python
