#pragma once

#include <cstdint>

// The binary layout of DLPack 1.x's exchange table, by which torch (2.10 and later) hands out a tensor's pointer, shape
// and strides without going through Python. Only what is used here has its real type.
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

struct ExchangeHeader {
  uint32_t major;
  uint32_t minor;
  ExchangeHeader* previous;
};

struct Exchange {
  ExchangeHeader header;
  void* allocate;
  void* export_owned;
  void* import_owned;
  int (*view)(void* py_object, Tensor* out);  // may be NULL
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
};

}  // namespace tigon::python::dlpack
