#pragma once

#include <cstdint>

// The binary layout of DLPack 1.x's exchange table, by which torch (2.10 and later) hands out a tensor's pointer, shape
// and strides, and allocates, without going through Python. Only what is used here has its real type.
namespace tigon::python::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };
inline constexpr uint32_t kMajorVersion = 1;

struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

// A tensor that somebody holds until its deleter is called.
struct OwnedTensor {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(OwnedTensor* self);  // may be NULL
  uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  uint32_t major;
  uint32_t minor;
  ExchangeHeader* previous;
};

struct Exchange {
  ExchangeHeader header;
  // Of the prototype only type, shape and device count. Nonzero, and a call of set_error, where there is no memory.
  int (*allocate)(Tensor* prototype, OwnedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  void* export_owned;
  void* import_owned;
  int (*view)(void* py_object, Tensor* out);  // may be NULL
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
};

}  // namespace tigon::python::dlpack
