// How backward of a norm is cut into blocks and groups, and the plain kernels for rows that do not fit that.
#include "backend/cuda/norm_backward.cuh"

#include "backend/cuda/norm.cuh"

namespace tigon::cuda {

namespace {

// The choices that were measured.
constexpr int kBlocksPerMultiprocessor = 1;
constexpr int kBlockThreads = 512;  // with up to 128 registers each
constexpr int kShareWarps = 16;
// Packs that a thread has of a row, usually; twice as many for rows that are too long else, or where the usual number
// would leave too many lanes idle. With dweight and dbias as f32 beside them that is what registers allow.
template <class T>
constexpr int kUsualPacks = std::is_same_v<T, float> ? 4 : 2;
template <class T>
constexpr int kMostPacks = 2 * kUsualPacks<T>;

// By the shape and the device alone, whatever the alignment: so is the order of every sum.
int64_t backward_blocks(const DeviceNumbers& device, int64_t tokens) {
  return std::min<int64_t>(tokens, device.multiprocessors * kBlocksPerMultiprocessor);
}

// How a row of so many packs is shared out.
struct Cut {
  int packs;  // per thread
  int64_t threads, groups;

  Cut(int64_t row_packs, int per_thread)
      : packs(per_thread), threads(round_up(divide_up(row_packs, per_thread), kWarp)) {
    groups = std::min<int64_t>(kBlockThreads / threads, threads == kWarp ? kMaxWarps : kMaxGroups);
    busy_ = static_cast<double>(groups * row_packs) / (per_thread * kBlockThreads);
  }
  double busy() const { return busy_; }

 private:
  double busy_;  // share of the block's lanes that have work
};

template <class T>
Cut cut_for(int64_t row_packs) {
  const Cut usual(row_packs, kUsualPacks<T>), most(row_packs, kMostPacks<T>);
  return usual.groups > 0 && usual.busy() > 0.75 * most.busy() ? usual : most;
}

// The vectors of a row, at most.
template <class T, bool kShifted>
int64_t row_packs(int64_t hidden) {
  return kShifted ? most_vectors(hidden, kLanes<T>) : hidden / kLanes<T>;
}

template <class T, Norm kNorm, int kPacks, int kStages, bool kBulk, bool kShifted>
bool try_launch(NormBackwardRows<T> args, const Cut& cut, int64_t blocks, const Context& ctx) {
  constexpr auto kKernel = norm_backward_kernel<T, kNorm, kPacks, kBlockThreads, kStages, kBulk, kShifted>;
  const size_t shared = norm_backward_shared<T, kStages, kShifted>(
      static_cast<size_t>(row_packs<T, kShifted>(args.hidden) * kLanes<T>), static_cast<size_t>(cut.groups));
  constexpr size_t kStatic = 2048;  // the kernel's own
  if (shared + kStatic > static_cast<size_t>(device_numbers(ctx.device).shared_bytes)) return false;
  allow_shared<kKernel>(ctx.device, "norm_backward");
  args.group_threads = static_cast<unsigned>(cut.threads);
  launch_early(ctx.device, true, stream_of(ctx), grid_size(blocks), static_cast<unsigned>(cut.threads * cut.groups),
               shared, kKernel, args);
  return true;
}

template <class T, Norm kNorm, int kPacks, bool kShifted>
bool try_stages(const NormBackwardRows<T>& args, const Cut& cut, int64_t blocks, const Context& ctx) {
  // Many registers leave room for few warps, and these do better with copies of their own.
  constexpr bool kLong = sizeof(T) == 2 && kPacks == kMostPacks<T>;
  if (device_numbers(ctx.device).code >= 90 && !kLong) {
    return try_launch<T, kNorm, kPacks, 3, true, kShifted>(args, cut, blocks, ctx) ||
           try_launch<T, kNorm, kPacks, 2, true, kShifted>(args, cut, blocks, ctx) ||
           try_launch<T, kNorm, kPacks, 1, false, kShifted>(args, cut, blocks, ctx);
  }
  return try_launch<T, kNorm, kPacks, 2, false, kShifted>(args, cut, blocks, ctx) ||
         try_launch<T, kNorm, kPacks, 1, false, kShifted>(args, cut, blocks, ctx);
}

template <class T, Norm kNorm, bool kShifted>
bool try_packed(const NormBackwardRows<T>& args, int64_t blocks, const Context& ctx) {
  const int64_t packs = row_packs<T, kShifted>(args.hidden);
  if (packs > kBlockThreads * kMostPacks<T> || args.tokens > (int64_t{1} << 30)) return false;
  const Cut cut = cut_for<T>(packs);
  // A group has rows of every kLanes-th number alone.
  if (kShifted && blocks * cut.groups < kLanes<T> && args.tokens > blocks * cut.groups) return false;
  return cut.packs == kUsualPacks<T> ? try_stages<T, kNorm, kUsualPacks<T>, kShifted>(args, cut, blocks, ctx)
                                     : try_stages<T, kNorm, kMostPacks<T>, kShifted>(args, cut, blocks, ctx);
}

// Any alignment and any length. First the shares of dweight, a thread per column: dx may be written over what they
// read.
template <class T, Norm kNorm>
__global__ void shares_any_kernel(const __grid_constant__ NormBackwardRows<T> args) {
  const int64_t hidden = args.hidden;
  for (int64_t j = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; j < hidden; j += int64_t{gridDim.x} * blockDim.x) {
    float dweight = 0.0f, dbias = 0.0f;
    for (int64_t i = blockIdx.y; i < args.tokens; i += gridDim.y) {
      const float mean = kNorm == Norm::layer ? args.mean[i] : 0.0f, dy = load_one(args.dy.at(i) + j);
      float normal = normal_of<kNorm>(load_one(args.x.at(i) + j), mean, args.rstd[i]);
      if (kNorm != Norm::layer && args.round_early) normal = rounded<T>(normal);
      dweight += dy * normal;
      dbias += dy;
    }
    if (args.dweight != nullptr) args.dweight[blockIdx.y * hidden + j] = dweight;
    if (args.dbias != nullptr) args.dbias[blockIdx.y * hidden + j] = dbias;
  }
}

template <class T, Norm kNorm>
__global__ void backward_any_kernel(const __grid_constant__ NormBackwardRows<T> args) {
  __shared__ float shared[kMaxWarps];
  const int64_t hidden = args.hidden;
  for (int64_t i = blockIdx.x; i < args.tokens; i += gridDim.x) {
    const T *x = args.x.at(i), *dy = args.dy.at(i);
    const T* above = kNorm == Norm::add_rms ? args.dresidual.at(i) : nullptr;
    T* dx = args.dx.at(i);
    const float rstd = args.rstd[i], mean = kNorm == Norm::layer ? args.mean[i] : 0.0f;
    const auto m = [&](int64_t j) { return load_one(dy + j) * read_parameter<T>(args.weight, j); };
    float sums[kRowSums<kNorm>] = {};
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      const float v = load_one(x + j);
      add_terms<kNorm>(sums, m(j), v, normal_of<kNorm>(v, mean, rstd));
    }
    for (float& sum : sums) sum = block_reduce(sum, 0.0f, Sum(), shared) / static_cast<float>(hidden);
    const Gradient<kNorm> gradient(mean, rstd, sums);
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      float value = gradient(m(j), load_one(x + j));
      if constexpr (kNorm == Norm::add_rms) value += load_one(above + j);
      store_one(dx + j, value);
    }
  }
}

template <class T, Norm kNorm>
void launch(const NormBackwardRows<T>& args, int64_t blocks, Reach reach, const Context& ctx) {
  if (reach == Reach::vectors && try_packed<T, kNorm, false>(args, blocks, ctx)) return;
  if (reach == Reach::shifted && try_packed<T, kNorm, true>(args, blocks, ctx)) return;
  if (args.dweight != nullptr || args.dbias != nullptr) {
    const dim3 tiles(grid_size(std::min<int64_t>(divide_up(args.hidden, 128), 1 << 16)), static_cast<unsigned>(blocks));
    shares_any_kernel<T, kNorm><<<tiles, 128, 0, stream_of(ctx)>>>(args);
  }
  if (args.dx.data != nullptr) {
    backward_any_kernel<T, kNorm><<<grid_size(args.tokens), 256, 0, stream_of(ctx)>>>(args);
  }
}

}  // namespace

void norm_backward(const Context& ctx, const NormBackward& args) {
  constexpr const char* kWhere = "norm_backward";
  check_storage(kWhere, {args.x});
  const int64_t tokens = args.x.sizes[0], hidden = args.x.sizes[1];
  const DeviceGuard guard(ctx);
  const int64_t blocks = backward_blocks(device_numbers(ctx.device), tokens);
  const Buffer dweight = ctx.scratch("norm_dweight", args.dweight ? blocks * hidden * 4 : 0);
  const Buffer dbias = ctx.scratch("norm_dbias", args.dbias ? blocks * hidden * 4 : 0);
  if (ctx.measuring() || hidden == 0) return;
  if (tokens > 0) {
    dispatch(kWhere, args.x.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      Reach reach = reach_of(false, args.x, args.dy, args.dresidual, args.dx);
      if (reach == Reach::vectors && !rows_aligned(args.weight)) reach = Reach::shifted;
      const NormBackwardRows<T> rows{.x = rows_of<const T>(args.x),
                                     .dy = rows_of<const T>(args.dy),
                                     .dresidual = rows_of<const T>(args.dresidual),
                                     .dx = rows_of<T>(args.dx),
                                     .weight = parameter(args.weight, args.offset, 1.0),
                                     .mean = args.mean ? args.mean.as<float>() : nullptr,
                                     .rstd = args.rstd.as<float>(),
                                     .dweight = dweight.as<float>(),
                                     .dbias = dbias.as<float>(),
                                     .tokens = tokens,
                                     .hidden = hidden,
                                     .group_threads = 0,
                                     .round_early = args.round_early};
      if (args.layer) {
        launch<T, Norm::layer>(rows, blocks, reach, ctx);
      } else if (args.dresidual) {
        launch<T, Norm::add_rms>(rows, blocks, reach, ctx);
      } else {
        launch<T, Norm::rms>(rows, blocks, reach, ctx);
      }
    });
    check_launch(kWhere);
  }
  if (!args.dweight && !args.dbias) return;
  const auto sum = [](const Buffer& shares, const Tensor& out) {
    return ShareSum{shares.as<float>(), out ? out.data : nullptr, out.dtype};
  };
  launch_early(
      ctx.device, tokens > 0, stream_of(ctx), dim3(grid_size(divide_up(hidden, kWarp)), args.dbias ? 2 : 1),
      dim3(kShareWarps * kWarp), 0, add_shares_kernel<kShareWarps>,
      ShareSums{
          {sum(dweight, args.dweight), sum(dbias, args.dbias)}, tokens > 0 ? blocks : 0, hidden, args.accumulate});
}

}  // namespace tigon::cuda
