// Memory, transfers, streams, events and graphs: thin over the CUDA runtime.
#include "backend/cuda/services.cuh"

#include "backend/cuda/launch.cuh"
#include "backend/cuda/lib/tracing.hpp"

namespace tigon::cuda {

namespace {

__global__ void nothing_kernel() {}

void require_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return;
  throw Error(ErrorCode::unsupported, {.where = "device cuda",
                                       .what = std::string("no usable NVIDIA GPU: ") +
                                               (status != cudaSuccess ? cudaGetErrorString(status) : "no device found"),
                                       .fix = "Check that nvidia-smi lists a GPU, or run on the CPU."});
}

int64_t bytes_in_use(Device device) {
  const DeviceGuard guard(device);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "device memory");
  return static_cast<int64_t>(total - free);
}

void* allocate(Device device, int64_t bytes) {
  const DeviceGuard guard(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    throw Error(ErrorCode::out_of_memory,
                {.where = "device memory",
                 .what = "the GPU refused " + std::to_string(bytes) + " bytes",
                 .got = std::to_string(free) + " of " + std::to_string(total) + " bytes are free",
                 .fix = "Use a smaller shape, or end other programs on this GPU."});
  }
  check(status, "device memory");
  return data;
}

void release(Device device, void* data) noexcept {
  int before = 0;
  (void)cudaGetDevice(&before);
  (void)cudaSetDevice(device.index);
  (void)cudaDeviceSynchronize();  // nothing may still be using it, launched graphs included
  (void)cudaFree(data);
  (void)cudaSetDevice(before);
}

void copy(const Context& ctx, void* to, const void* from, int64_t bytes) {
  const DeviceGuard guard(ctx.device);
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_of(ctx)), "device copy");
}

void fill(const Context& ctx, void* data, uint8_t value, int64_t bytes) {
  const DeviceGuard guard(ctx.device);
  check(cudaMemsetAsync(data, value, static_cast<size_t>(bytes), stream_of(ctx)), "device fill");
}

void synchronize(const Context& ctx) {
  const DeviceGuard guard(ctx.device);
  check(cudaStreamSynchronize(stream_of(ctx)), "synchronize");
}

void* create_stream(Device device, bool urgent) {
  const DeviceGuard guard(device);
  int least = 0, most = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &most), "stream");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? most : least), "stream");
  return stream;
}

void destroy_stream(Device, void* stream) noexcept { (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

void* create_event(Device device, bool timed) {
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  // A thread that waits for an untimed one sleeps: the host's cores have updates to do.
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming | cudaEventBlockingSync;
  check(cudaEventCreateWithFlags(&event, flags), "event");
  return event;
}

void destroy_event(Device, void* event) noexcept { (void)cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

void record_event(const Context& ctx, void* event) {
  const DeviceGuard guard(ctx.device);
  check(cudaEventRecord(static_cast<cudaEvent_t>(event), stream_of(ctx)), "event");
}

void wait_event(const Context& ctx, void* event) {
  const DeviceGuard guard(ctx.device);
  check(cudaStreamWaitEvent(stream_of(ctx), static_cast<cudaEvent_t>(event), 0), "event");
}

void synchronize_event(Device device, void* event) {
  const DeviceGuard guard(device);
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "event");
}

double event_ms(Device device, void* from, void* to) {
  const DeviceGuard guard(device);
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(to)), "event");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)), "event");
  return ms;
}

void pin(Device device, void* data, int64_t bytes) {
  const DeviceGuard guard(device);
  const cudaError_t status = cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(
      ErrorCode::out_of_memory,
      {.where = "pinned memory",
       .what = "the system refused to pin " + std::to_string(bytes) + " bytes of host memory",
       .got = cudaGetErrorString(status),
       .fix = "Keep less on the host, leave the optimizer's states out of pinned memory (--update cpu), or raise the "
              "limit of locked memory (ulimit -l)."});
}

void unpin(Device, void* data) noexcept { (void)cudaHostUnregister(data); }

void host_task(const Context& ctx, void (*run)(void*), void* argument) {
  const DeviceGuard guard(ctx.device);
  check(cudaLaunchHostFunc(stream_of(ctx), run, argument), "host task");
}

void begin_capture(const Context& ctx) {
  const DeviceGuard guard(ctx.device);
  check(cudaStreamBeginCapture(stream_of(ctx), cudaStreamCaptureModeThreadLocal), "graph capture");
}

void* end_capture(const Context& ctx) {
  const DeviceGuard guard(ctx.device);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_of(ctx), &graph), "graph capture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "graph capture");
  return executable;
}

void launch_graph(const Context& ctx, void* graph) {
  const DeviceGuard guard(ctx.device);
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(ctx)), "graph launch");
}

void destroy_graph(Device, void* graph) noexcept { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

void describe(Device device, DeviceDescription& description) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, device.index), "device cuda");
  description = {.name = p.name,
                 .memory = static_cast<int64_t>(p.totalGlobalMem),
                 .major = p.major,
                 .minor = p.minor,
                 .multiprocessors = p.multiProcessorCount,
                 .warp_size = p.warpSize,
                 .threads_per_block = p.maxThreadsPerBlock,
                 .threads_per_multiprocessor = p.maxThreadsPerMultiProcessor,
                 .registers_per_multiprocessor = p.regsPerMultiprocessor,
                 .shared_memory_per_block = static_cast<int64_t>(p.sharedMemPerBlock),
                 .shared_memory_per_multiprocessor = static_cast<int64_t>(p.sharedMemPerMultiprocessor)};
}

}  // namespace

int compiled_capability() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, nothing_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();
    throw Error(ErrorCode::unsupported, {.where = "device cuda",
                                         .what = "this build of Tigon has no code for the GPU",
                                         .fix = "Build it for all of them (./scripts/build cuda), or set "
                                                "CMAKE_CUDA_ARCHITECTURES to native on this machine."});
  }
  check(status, "device cuda");
  return attributes.ptxVersion;
}

const DeviceServices& services() {
  static const DeviceServices table = {
      .require_device = require_device,
      .assumed_name = kAssumedName,
      .bytes_in_use = bytes_in_use,
      .allocate = allocate,
      .release = release,
      .copy = copy,
      .fill = fill,
      .synchronize = synchronize,
      .create_stream = create_stream,
      .destroy_stream = destroy_stream,
      .create_event = create_event,
      .destroy_event = destroy_event,
      .record_event = record_event,
      .wait_event = wait_event,
      .synchronize_event = synchronize_event,
      .event_ms = event_ms,
      .pin = pin,
      .unpin = unpin,
      .host_task = host_task,
      .begin_capture = begin_capture,
      .end_capture = end_capture,
      .launch_graph = launch_graph,
      .destroy_graph = destroy_graph,
      .describe = describe,
      .start_trace = start_trace,
      .enter_trace = enter_trace,
      .leave_trace = leave_trace,
      .finish_trace = finish_trace,
      .push_range = push_range,
      .pop_range = pop_range,
  };
  return table;
}

}  // namespace tigon::cuda
