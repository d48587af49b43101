// Work under a condition: each part is the body of an IF node of a CUDA graph, and a kernel before it decides. Where
// the caller is recording a graph the nodes join that one; else the parts become a graph of their own. Making one ready
// to launch can take the driver milliseconds, and may wait for the GPU, so it is kept: a training loop calls with the
// same memory again and again.
#include "backend/cuda/conditional.hpp"

#include <algorithm>
#include <cstdlib>
#include <list>
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

// The graphs that were launched last, by key, ready to be launched again. One that is forgotten stays until the event
// behind its last launch says that it has run: destroying it earlier would take its kernels' arguments away.
class KeptGraphs {
 public:
  // Launches the graph of this key, which `make` makes where there is none.
  template <class Make>
  void launch(const std::string& key, cudaStream_t stream, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key; });
    if (found == kept_.end()) {
      kept_.push_front({.key = key, .executable = nullptr, .done = nullptr});
      found = kept_.begin();
      try {
        check(cudaEventCreateWithFlags(&found->done, cudaEventDisableTiming), kWhere);
        found->executable = make();
      } catch (...) {
        destroy(*found);
        kept_.pop_front();
        throw;
      }
    }
    kept_.splice(kept_.begin(), kept_, found);  // the newest first
    check(cudaGraphLaunch(found->executable, stream), kWhere);
    check(cudaEventRecord(found->done, stream), kWhere);
    forget_some();
  }

 private:
  struct Kept {
    std::string key;
    cudaGraphExec_t executable;
    cudaEvent_t done;
  };
  static constexpr size_t kMost = 16;

  static void destroy(const Kept& kept) {
    if (kept.done != nullptr) (void)cudaEventDestroy(kept.done);
    if (kept.executable != nullptr) (void)cudaGraphExecDestroy(kept.executable);
  }
  void forget_some() {
    for (auto k = kept_.end(); kept_.size() > kMost && k != kept_.begin();) {
      --k;
      if (cudaEventQuery(k->done) == cudaErrorNotReady) continue;
      destroy(*k);
      k = kept_.erase(k);
    }
    (void)cudaGetLastError();  // "not ready" is no error
  }

  std::mutex mutex_;
  std::list<Kept> kept_;
};

cudaGraphExec_t record(const Context& ctx, const int64_t* count, const std::vector<Part>& parts) {
  Recorder recorder;
  record_parts(recorder.context(ctx), count, parts);
  const cudaGraph_t graph = recorder.finish();
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, kWhere);
  return executable;
}

}  // namespace

void run_needed(const Context& ctx, const int64_t* count, const std::vector<Part>& parts, const WorkKey& key) {
  if (parts.empty()) return;
  const DeviceGuard guard(ctx);
  const AllowInCapture allow;
  if (!nodes_exist()) {
    for (const Part& part : parts) part.run(ctx);
    return;
  }
  if (is_capturing(stream_of(ctx))) return record_parts(ctx, count, parts);
  static auto& graphs = *new KeptGraphs;  // never destroyed: at exit the driver may be gone before it
  WorkKey whole = key;
  whole.add(ctx.device.index).add(count);
  for (const Part& part : parts) whole.add(part.begin);
  graphs.launch(whole.bytes(), stream_of(ctx), [&] { return record(ctx, count, parts); });
}

}  // namespace tigon::cuda
