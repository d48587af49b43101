// Work under a condition: each part is the body of an IF node of a CUDA graph, and a kernel before it decides. Where
// the caller is recording a graph the nodes join that one; else the parts become a graph of their own, launched once.
#include "backend/cuda/conditional.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "backend/cuda/capture.cuh"

namespace tigon::cuda {

namespace {

constexpr const char* kWhere = "conditional work";

__global__ void decide_kernel(cudaGraphConditionalHandle condition, const int64_t* count, int64_t begin) {
  cudaGraphSetConditional(condition, *count > begin ? 1 : 0);
}

struct IfNode {
  cudaGraphNode_t node = nullptr;
  cudaGraph_t body = nullptr;
};
cudaError_t add_if(IfNode& made, cudaGraph_t graph, cudaGraphConditionalHandle condition, const cudaGraphNode_t* after,
                   const cudaGraphEdgeData* edges, size_t count) {
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = condition;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  const cudaError_t status = cudaGraphAddNode(&made.node, graph, after, edges, count, &params);
  if (status == cudaSuccess) made.body = params.conditional.phGraph_out[0];
  return status;
}

// Whether the driver has such nodes; asked once, with a graph that never runs. TIGON_CONDITIONAL=off says no, to tell
// faults of such graphs, or of tools that look into them, from others.
bool nodes_exist() {
  static const bool answer = [] {
    const char* choice = std::getenv("TIGON_CONDITIONAL");
    if (choice != nullptr && std::string_view(choice) == "off") return false;
    cudaGraph_t graph = nullptr;
    cudaGraphConditionalHandle condition{};
    IfNode made;
    const bool good =
        cudaGraphCreate(&graph, 0) == cudaSuccess &&
        cudaGraphConditionalHandleCreate(&condition, graph, 0, cudaGraphCondAssignDefault) == cudaSuccess &&
        add_if(made, graph, condition, nullptr, nullptr, 0) == cudaSuccess;
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return good;
  }();
  return answer;
}

// A stream of our own that records what is queued on it.
class Recorder {
 public:
  // Into a new graph, or into the body of a node.
  explicit Recorder(cudaGraph_t body = nullptr) : body_(body) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), kWhere);
    const cudaError_t status = body != nullptr ? cudaStreamBeginCaptureToGraph(stream_, body, nullptr, nullptr, 0,
                                                                               cudaStreamCaptureModeRelaxed)
                                               : cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
    if (status != cudaSuccess) (void)cudaStreamDestroy(stream_);
    check(status, kWhere);
  }
  // Where the recording was left unfinished, an error is on its way: nothing of it is kept.
  ~Recorder() {
    cudaGraph_t graph = nullptr;
    if (recording_ && cudaStreamEndCapture(stream_, &graph) == cudaSuccess && body_ == nullptr) {
      (void)cudaGraphDestroy(graph);
    }
    (void)cudaStreamDestroy(stream_);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Context context(const Context& outside) const {
    Context inside = outside;
    inside.stream = stream_;
    return inside;
  }
  cudaGraph_t finish() {
    cudaGraph_t graph = nullptr;
    recording_ = false;
    check(cudaStreamEndCapture(stream_, &graph), kWhere);
    return graph;
  }

 private:
  cudaGraph_t body_;
  cudaStream_t stream_ = nullptr;
  bool recording_ = true;
};

// Adds a part to the graph that ctx.stream records.
void record_part(const Context& ctx, const int64_t* count, const Part& part) {
  const cudaStream_t stream = stream_of(ctx);
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph), kWhere);
  cudaGraphConditionalHandle condition{};
  check(cudaGraphConditionalHandleCreate(&condition, graph, 0, cudaGraphCondAssignDefault), kWhere);
  decide_kernel<<<1, 1, 0, stream>>>(condition, count, part.begin);
  check_launch(kWhere);

  // The node comes after what the stream recorded so far, and before what it records next.
  const cudaGraphNode_t* after = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t afters = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &after, &edges, &afters), kWhere);
  IfNode made;
  check(add_if(made, graph, condition, after, edges, afters), kWhere);
  check(cudaStreamUpdateCaptureDependencies(stream, &made.node, nullptr, 1, cudaStreamSetCaptureDependencies), kWhere);
  Recorder body(made.body);
  part.run(body.context(ctx));
  (void)body.finish();
}

void record_parts(const Context& ctx, const int64_t* count, const std::vector<Part>& parts) {
  for (const Part& part : parts) record_part(ctx, count, part);
}

// Graphs that were launched, each until the event behind it says that it has run: destroying one earlier would take its
// kernels' arguments away.
class Launched {
 public:
  void add(cudaGraphExec_t executable, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    std::erase_if(running_, [](const Running& r) {
      if (cudaEventQuery(r.done) == cudaErrorNotReady) return false;
      (void)cudaEventDestroy(r.done);
      (void)cudaGraphExecDestroy(r.executable);
      return true;
    });
    (void)cudaGetLastError();  // "not ready" is no error
    cudaEvent_t done = nullptr;
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), kWhere);
    check(cudaEventRecord(done, stream), kWhere);
    running_.push_back({executable, done});
  }

 private:
  struct Running {
    cudaGraphExec_t executable;
    cudaEvent_t done;
  };
  std::mutex mutex_;
  std::vector<Running> running_;
};

}  // namespace

void run_needed(const Context& ctx, const int64_t* count, const std::vector<Part>& parts) {
  if (parts.empty()) return;
  const DeviceGuard guard(ctx);
  const AllowInCapture allow;
  if (!nodes_exist()) {
    for (const Part& part : parts) part.run(ctx);
    return;
  }
  if (is_capturing(stream_of(ctx))) return record_parts(ctx, count, parts);
  Recorder recorder;
  record_parts(recorder.context(ctx), count, parts);
  const cudaGraph_t graph = recorder.finish();
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, kWhere);
  check(cudaGraphLaunch(executable, stream_of(ctx)), kWhere);
  static auto& launched = *new Launched;  // never destroyed: at exit the driver may be gone before it
  launched.add(executable, stream_of(ctx));
}

}  // namespace tigon::cuda
