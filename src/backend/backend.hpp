#pragma once

#include "tigon/core/version.hpp"
#include "tigon/ops/all.hpp"
#include "tigon/ops/device_trace.hpp"

namespace tigon {

template <class Args>
using OpFunction = void (*)(const Context&, const Args&);

// What a device with memory of its own offers besides ops. Streams are those of Context; work is queued and nobody
// waits, except in allocate, release, pin, synchronize and the two that say so. Failures throw Error.
struct DeviceServices {
  void (*require_device)() = nullptr;  // throws Error (unsupported) where there is no device that could be used
  const char* assumed_name = "";       // what assumed_gpu() stands for
  int64_t (*bytes_in_use)(Device device) = nullptr;  // of its memory, by whomever

  void* (*allocate)(Device device, int64_t bytes) = nullptr;
  void (*release)(Device device, void* data) noexcept = nullptr;
  void (*copy)(const Context& ctx, void* to, const void* from, int64_t bytes) = nullptr;  // between any two memories
  void (*fill)(const Context& ctx, void* data, uint8_t value, int64_t bytes) = nullptr;
  void (*synchronize)(const Context& ctx) = nullptr;

  void* (*create_stream)(Device device, bool urgent) = nullptr;
  void (*destroy_stream)(Device device, void* stream) noexcept = nullptr;

  void* (*create_event)(Device device, bool timed) = nullptr;
  void (*destroy_event)(Device device, void* event) noexcept = nullptr;
  void (*record_event)(const Context& ctx, void* event) = nullptr;
  void (*wait_event)(const Context& ctx, void* event) = nullptr;      // what is queued on ctx.stream after it waits
  void (*synchronize_event)(Device device, void* event) = nullptr;    // the host waits
  double (*event_ms)(Device device, void* from, void* to) = nullptr;  // of timed ones; waits for `to`

  void (*pin)(Device device, void* data, int64_t bytes) = nullptr;  // host memory that copies reach without a detour
  void (*unpin)(Device device, void* data) noexcept = nullptr;
  void (*host_task)(const Context& ctx, void (*run)(void*), void* argument) = nullptr;  // in the stream's order

  void (*begin_capture)(const Context& ctx) = nullptr;
  void* (*end_capture)(const Context& ctx) = nullptr;  // the graph, ready to launch
  void (*launch_graph)(const Context& ctx, void* graph) = nullptr;
  void (*destroy_graph)(Device device, void* graph) noexcept = nullptr;

  // What DeviceTrace and its neighbours do. start_trace returns why nothing can be seen, or an empty text.
  void (*describe)(Device device, DeviceDescription& description) = nullptr;
  std::string (*start_trace)() = nullptr;
  void (*enter_trace)(int64_t scope) noexcept = nullptr;
  void (*leave_trace)() noexcept = nullptr;
  std::vector<DeviceActivity> (*finish_trace)(bool& cut) = nullptr;
  void (*push_range)(const char* name) = nullptr;
  void (*pop_range)() noexcept = nullptr;
};

// What a backend is: one function per op. A table rather than plain calls because the CUDA backend is a library opened
// at run time. Arguments arrive checked. A function books its scratch from ctx and, when ctx.measuring(), returns
// there.
struct Backend {
  const char* name = "";
  const DeviceServices* services = nullptr;  // absent where ops work on host memory
#define TIGON_OP_MEMBER(name, Args) OpFunction<ops::Args> name = nullptr;
  TIGON_BACKEND_OPS(TIGON_OP_MEMBER)
#undef TIGON_OP_MEMBER
};

// A backend declares its functions by TIGON_BACKEND_OPS(TIGON_DECLARE_OP), and lists them in its table by the other.
#define TIGON_DECLARE_OP(name, Args) void name(const Context& ctx, const ops::Args& args);
#define TIGON_TABLE_ENTRY(name, Args) .name = name,

// Who a plug-in is: its table is read only where this is the same on both sides. The fields never change.
struct BackendIdentity {
  const char* version;   // of the release
  uint64_t table_bytes;  // sizeof(Backend)
  uint64_t layout;       // of all that crosses the table
};

namespace detail {
template <class... Structs>
constexpr uint64_t layout_of() {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over the sizes
  for (const uint64_t bytes : {uint64_t{sizeof(Structs)}...}) hash = (hash ^ bytes) * 0x100000001b3u;
  return hash;
}
}  // namespace detail

inline BackendIdentity backend_identity() {
#define TIGON_OP_ARGUMENTS(name, Args) , ops::Args
  return {.version = version(),
          .table_bytes = sizeof(Backend),
          .layout = detail::layout_of<Context, Tensor, DeviceServices, DeviceActivity,
                                      DeviceDescription TIGON_BACKEND_OPS(TIGON_OP_ARGUMENTS)>()};
#undef TIGON_OP_ARGUMENTS
}

}  // namespace tigon
