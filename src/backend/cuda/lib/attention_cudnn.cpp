// The only file that includes cudnn-frontend, which takes a minute to compile.
#include "backend/cuda/lib/attention_cudnn.hpp"

#include <cudnn_frontend.h>

#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cuda/capture.cuh"
#include "backend/cuda/lib/cudnn_entry.hpp"
#include "backend/cuda/row_launch.cuh"

namespace tigon::cuda {

namespace {

namespace fe = cudnn_frontend;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

// The tensors of both directions, by the numbers that cuDNN knows them by.
enum Uid : int64_t { kQ = 1, kK, kV, kO, kLse, kDout, kDq, kDk, kDv };
using Pointers = std::unordered_map<int64_t, void*>;

// A graph with its plan, or the reason why there is none.
struct Plan {
  fe::graph::Graph graph;
  int64_t workspace = 0;
  std::string why_not;
};

enum class Direction { forward, backward, racing_backward };

// All that a plan may depend on.
using Key = std::vector<int64_t>;

// Handles and plans live as long as the process: cuDNN may be gone before our statics are.
struct Library {
  std::mutex mutex;
  std::map<int, cudnnHandle_t> handles;
  std::map<Key, std::unique_ptr<Plan>> plans;
};
Library& library() {
  static Library& only = *new Library;
  return only;
}

cudnnHandle_t handle_of(Library& lib, int device) {
  cudnnHandle_t& handle = lib.handles[device];
  if (handle != nullptr) return handle;
  const AllowInCapture allow;  // starting takes memory
  if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) handle = nullptr;
  return handle;
}

// [batch, seq, heads, D] as cuDNN's dimensions B, H, S, D. Where there is one of something, its stride is free.
struct Layout {
  std::vector<int64_t> sizes, strides;
  explicit Layout(const Tensor& t)
      : sizes{t.sizes[0], t.sizes[2], t.sizes[1], t.sizes[3]}, strides{0, t.strides[2], t.strides[1], 1} {
    if (t.sizes[2] == 1) strides[1] = t.sizes[3];
    if (t.sizes[1] == 1) strides[2] = t.sizes[2] * strides[1];
    strides[0] = t.sizes[0] == 1 ? t.sizes[1] * strides[2] : t.strides[0];
  }
};

double scale_of(double scale, const Tensor& q) {
  return scale != 0 ? scale : 1.0 / std::sqrt(static_cast<double>(q.sizes[3]));
}

const char* const kCrooked = "rows must begin at multiples of 16 bytes";

// Why cuDNN need not be asked; empty when it may know the answer.
template <class Args, class... Others>
std::string cannot(const Args& args, int64_t longest, const Others&... others) {
  if (args.q.dtype != DType::bf16 && args.q.dtype != DType::f16) return "it has no attention in f32";
  if (args.q.sizes[3] % 8 != 0 || args.q.sizes[3] > longest) {
    return "D must be a multiple of 8, up to " + std::to_string(longest);
  }
  if (!strides_aligned(args.q, args.k, args.v, others...)) return kCrooked;
  if (args.q.elements() == 0) return "there is nothing to do";
  if (!(args.scale >= 0)) return "the scale must be positive";
  return cudnn_opens() ? "" : "libcudnn.so.9 cannot be opened";
}

template <class Args>
Key key_of(const Context& ctx, const Args& args, Direction direction, bool stats,
           std::initializer_list<const Tensor*> all) {
  Key key{ctx.device.index,
          static_cast<int64_t>(args.q.dtype),
          args.causal,
          std::bit_cast<int64_t>(scale_of(args.scale, args.q)),
          static_cast<int64_t>(direction),
          stats};
  for (const Tensor* t : all) {
    const Layout layout(*t);
    key.insert(key.end(), layout.sizes.begin(), layout.sizes.end());
    key.insert(key.end(), layout.strides.begin(), layout.strides.end());
  }
  return key;
}

TensorPointer input(fe::graph::Graph& graph, const char* name, Uid uid, const Tensor& t) {
  const Layout layout(t);
  return graph.tensor(
      fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(layout.sizes).set_stride(layout.strides));
}

void output(const TensorPointer& made, Uid uid, const Tensor& t) {
  const Layout layout(t);
  made->set_output(true).set_uid(uid).set_dim(layout.sizes).set_stride(layout.strides);
}

// Our lse, contiguous [batch, heads, seq], as cuDNN's statistics [B, H, S, 1].
void as_statistics(fe::graph::Tensor_attributes& t, const Tensor& q) {
  const int64_t seq = q.sizes[1], heads = q.sizes[2];
  t.set_uid(kLse)
      .set_dim({q.sizes[0], heads, seq, 1})
      .set_stride({heads * seq, seq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

template <class Attributes, class Args>
Attributes attributes_of(const Args& args) {
  Attributes attributes;
  attributes.set_name("attention").set_attn_scale(static_cast<float>(scale_of(args.scale, args.q)));
  if (args.causal) {
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  }
  return attributes;
}

void describe(fe::graph::Graph& graph, const ops::AttentionForward& args) {
  auto attributes = attributes_of<fe::graph::SDPA_attributes>(args);
  attributes.set_generate_stats(args.lse.present());
  auto [o, lse] = graph.sdpa(input(graph, "q", kQ, args.q), input(graph, "k", kK, args.k),
                             input(graph, "v", kV, args.v), attributes);
  output(o, kO, args.o);
  if (args.lse) as_statistics(lse->set_output(true), args.q);
}

void describe(fe::graph::Graph& graph, const ops::AttentionBackward& args) {
  auto attributes = attributes_of<fe::graph::SDPA_backward_attributes>(args);
  attributes.set_deterministic_algorithm(args.deterministic);
  fe::graph::Tensor_attributes lse;
  as_statistics(lse.set_name("lse"), args.q);
  auto [dq, dk, dv] = graph.sdpa_backward(input(graph, "q", kQ, args.q), input(graph, "k", kK, args.k),
                                          input(graph, "v", kV, args.v), input(graph, "o", kO, args.o),
                                          input(graph, "dout", kDout, args.dout), graph.tensor(lse), attributes);
  output(dq, kDq, args.dq);
  output(dk, kDk, args.dk);
  output(dv, kDv, args.dv);
}

template <class Args>
void build(Plan& plan, cudnnHandle_t handle, const Args& args) {
  plan.graph.set_io_data_type(args.q.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  describe(plan.graph, args);
  const AllowInCapture allow;  // building loads code
  fe::error_t status = plan.graph.build(handle, {fe::HeurMode_t::A});
  if (status.is_bad()) {
    plan.why_not = "cuDNN has no plan: " + status.get_message();
    return;
  }
  plan.workspace = plan.graph.get_workspace_size();
}

// The plan of a key; the library's mutex is held.
template <class Args>
Plan& plan_of(Library& lib, const Key& key, cudnnHandle_t handle, const Args& args) {
  std::unique_ptr<Plan>& plan = lib.plans[key];
  if (plan == nullptr) {
    plan = std::make_unique<Plan>();
    try {
      build(*plan, handle, args);
    } catch (const std::exception& error) {
      plan->why_not = std::string("cuDNN failed: ") + error.what();
    }
  }
  return *plan;
}

Key key_of(const Context& ctx, const ops::AttentionForward& args) {
  return key_of(ctx, args, Direction::forward, args.lse.present(), {&args.q, &args.k, &args.v, &args.o});
}
Key key_of(const Context& ctx, const ops::AttentionBackward& args) {
  return key_of(ctx, args, args.deterministic ? Direction::backward : Direction::racing_backward, true,
                {&args.q, &args.k, &args.v, &args.o, &args.dout, &args.dq, &args.dk, &args.dv});
}

template <class Args>
CudnnAnswer ask(const Context& ctx, const Args& args, int64_t most_workspace) {
  if (ctx.device.assumed()) return {.why_not = "cuDNN makes its plans on a GPU that is there"};
  const DeviceGuard guard(ctx);
  Library& lib = library();
  const std::scoped_lock lock(lib.mutex);
  cudnnHandle_t handle = handle_of(lib, ctx.device.index);
  if (handle == nullptr) return {.why_not = "cuDNN does not start on this device"};
  const Plan& plan = plan_of(lib, key_of(ctx, args), handle, args);
  if (!plan.why_not.empty()) return {.why_not = plan.why_not};
  if (plan.workspace > most_workspace) {
    return {.why_not = "its workspace of " + std::to_string(plan.workspace) + " bytes is not linear in seq"};
  }
  return {.why_not = "", .workspace = plan.workspace};
}

template <class Args>
void run(const Context& ctx, const Args& args, Pointers pointers, void* workspace) {
  const DeviceGuard guard(ctx);
  Library& lib = library();
  const std::scoped_lock lock(lib.mutex);
  cudnnHandle_t handle = handle_of(lib, ctx.device.index);
  if (cudnnSetStream(handle, stream_of(ctx)) != CUDNN_STATUS_SUCCESS) {
    throw Error(ErrorCode::internal, {.where = "attention on a GPU", .what = "cuDNN does not take the stream"});
  }
  fe::error_t status = plan_of(lib, key_of(ctx, args), handle, args).graph.execute(handle, pointers, workspace);
  if (status.is_bad()) {
    throw Error(ErrorCode::internal,
                {.where = "attention on a GPU", .what = "cuDNN failed to run its plan: " + status.get_message()});
  }
}

bool lse_aligned(const Tensor& lse) { return !lse || reinterpret_cast<uintptr_t>(lse.data) % 16 == 0; }

}  // namespace

CudnnAnswer ask_cudnn(const Context& ctx, const ops::AttentionForward& args) {
  if (std::string why = cannot(args, 256, args.o); !why.empty()) return {.why_not = why};
  return ask(ctx, args, INT64_MAX);
}

CudnnAnswer ask_cudnn(const Context& ctx, const ops::AttentionBackward& args, bool any_workspace) {
  if (std::string why = cannot(args, 128, args.o, args.dout, args.dq, args.dk, args.dv); !why.empty()) {
    return {.why_not = why};
  }
  // Room for dq, dk and dv of every query head in f32, and some.
  const int64_t linear = 16 * args.q.elements() + (int64_t{1} << 20);
  // Before Blackwell the deterministic graph is known to hold all gradients of probabilities, and need not be built.
  const int64_t square = 2 * args.q.sizes[0] * args.q.sizes[2] * args.q.sizes[1] * args.q.sizes[1];
  if (args.deterministic && !any_workspace && square > linear && device_numbers(ctx.device).capability < 100) {
    return {.why_not = "its deterministic gradient holds seq×seq values per head"};
  }
  return ask(ctx, args, any_workspace ? INT64_MAX : linear);
}

std::string run_cudnn(const Context& ctx, const ops::AttentionForward& args, void* workspace) {
  if (!lse_aligned(args.lse) || !rows_aligned(args.q, args.k, args.v, args.o)) return kCrooked;
  Pointers pointers{{kQ, args.q.data}, {kK, args.k.data}, {kV, args.v.data}, {kO, args.o.data}};
  if (args.lse) pointers[kLse] = args.lse.data;
  run(ctx, args, std::move(pointers), workspace);
  return "";
}

std::string run_cudnn(const Context& ctx, const ops::AttentionBackward& args, void* workspace) {
  if (!lse_aligned(args.lse) || !rows_aligned(args.q, args.k, args.v, args.o, args.dout, args.dq, args.dk, args.dv)) {
    return kCrooked;
  }
  run(ctx, args,
      {{kQ, args.q.data},
       {kK, args.k.data},
       {kV, args.v.data},
       {kO, args.o.data},
       {kDout, args.dout.data},
       {kLse, args.lse.data},
       {kDq, args.dq.data},
       {kDk, args.dk.data},
       {kDv, args.dv.data}},
      workspace);
  return "";
}

}  // namespace tigon::cuda
