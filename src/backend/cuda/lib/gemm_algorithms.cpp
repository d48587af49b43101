#include "backend/cuda/lib/gemm_algorithms.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/capture.cuh"
#include "backend/cuda/lib/gemm.hpp"
#include "backend/cuda/same_bytes.hpp"

namespace tigon::cuda {

namespace {

constexpr int kCandidates = 8;  // asked for more, the library gave no more
constexpr double kTuneMs = 12;  // of each candidate, in one go

void check_lt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::internal,
              {.where = "matrix product on a GPU",
               .what = std::string("cuBLASLt, ") + what + ": " + cublasLtGetStatusString(status)});
}

// cuBLASLt's descriptors are created and destroyed by pointer.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const noexcept { (void)kDestroy(handle); }
};
using Operation = std::unique_ptr<void, Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<void, Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference = std::unique_ptr<void, Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

// What the library needs to know about a product; the same for every call with one key.
struct Problem {
  Operation operation;
  Layout first, second, out;  // of the column-major view: our b, our a, our c
  cublasLtMatmulAlgo_t algorithm{};
};

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_lt(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value), "describing the product");
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
           "stating preferences");
}

// Row-major rows × columns with `stride` between rows is column-major columns × rows.
Layout layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), stride),
           "describing a matrix");
  return Layout(made);
}

Problem describe(const GemmKey& key) {
  Problem problem;
  cublasLtMatmulDesc_t operation = nullptr;
  check_lt(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing the product");
  problem.operation.reset(operation);
  set(problem.operation, CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(problem.operation, CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) {
    set(problem.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(problem.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, key.out_type);
  }
  problem.first =
      key.b_transposed ? layout(key.in_type, key.n, key.k, key.ldb) : layout(key.in_type, key.k, key.n, key.ldb);
  problem.second =
      key.a_transposed ? layout(key.in_type, key.k, key.m, key.lda) : layout(key.in_type, key.m, key.k, key.lda);
  problem.out = layout(key.out_type, key.m, key.n, key.ldc);
  return problem;
}

constexpr int64_t kLongestCutSum = int64_t{1} << 17;

// The library's choices, best first by its own estimate.
std::vector<cublasLtMatmulHeuristicResult_t> candidates(cublasLtHandle_t handle, const GemmKey& key,
                                                        const Problem& problem) {
  cublasLtMatmulPreference_t made = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&made), "stating preferences");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(key.workspace));
  // Partial sums meet in the workspace in f32 and in order: the other schemes round them or let them race.
  // Very long sums of 16-bit products are not cut at all: cuBLASLt 13.1 leaves out the last terms of some (seen with
  // 255992 and 256000, and up to 16 rows). f32 loses none, and needs the pieces: one sum of so many is too inexact.
  const bool cut = key.k <= kLongestCutSum || key.in_type == CUDA_R_32F;
  const uint32_t reduction = cut ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c);
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int returned = 0;
  check_lt(cublasLtMatmulAlgoGetHeuristic(handle, problem.operation.get(), problem.first.get(), problem.second.get(),
                                          problem.out.get(), problem.out.get(), preference.get(), kCandidates,
                                          found.data(), &returned),
           "choosing an algorithm");
  found.resize(static_cast<size_t>(returned));
  std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (found.empty()) check_lt(CUBLAS_STATUS_NOT_SUPPORTED, "choosing an algorithm");
  return found;
}

uint32_t tile_of(const cublasLtMatmulAlgo_t& algorithm) {
  uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  size_t written = 0;
  (void)cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
  return tile;
}

// The share of the chip that is busy over all waves of tiles.
float busy(const cublasLtMatmulHeuristicResult_t& choice) { return choice.wavesCount / std::ceil(choice.wavesCount); }

// Which choice to take without timing any; what was measured is in bench/results/h200-vs-peers.md, "Which algorithm".
size_t preferred(const GemmKey& key, const std::vector<cublasLtMatmulHeuristicResult_t>& choices) {
  const bool hopper = device_numbers({DeviceKind::cuda, key.device}).capability == 90;
  if (!hopper || key.in_type == CUDA_R_32F) return 0;
  // Where the output is many tiles large, the library's estimate is too kind to its largest tiles: under load on an
  // H200 the next smaller ones are 11 % faster on average and up to 39 % where sums are short.
  if (key.k <= 16384) {
    const float many_waves = key.k <= 4096 ? 10 : 24;
    for (size_t i = 0; i < choices.size(); ++i) {
      const uint32_t tile = tile_of(choices[i].algo);
      const bool next_smaller = tile == CUBLASLT_MATMUL_TILE_128x160 || tile == CUBLASLT_MATMUL_TILE_168x128 ||
                                tile == CUBLASLT_MATMUL_TILE_176x128;
      if (next_smaller && choices[i].wavesCount >= many_waves) return i;
    }
  }
  // These two are slower than what comes next, by a fifth and more.
  const uint32_t first = tile_of(choices[0].algo);
  if (choices.size() > 1 && (first == CUBLASLT_MATMUL_TILE_128x80 || first == CUBLASLT_MATMUL_TILE_448x64)) return 1;
  // A second wave that is partly empty costs as much as a full one; some smaller tiles fill theirs.
  if (choices[0].wavesCount <= 1 || choices[0].wavesCount > 1.8f) return 0;
  size_t best = 0;
  for (size_t i = 1; i < choices.size(); ++i) {
    const uint32_t tile = tile_of(choices[i].algo);
    const bool fast = tile == CUBLASLT_MATMUL_TILE_112x128 || tile == CUBLASLT_MATMUL_TILE_128x160 ||
                      tile == CUBLASLT_MATMUL_TILE_256x128;
    if (fast && busy(choices[i]) > std::max(0.9f, busy(choices[best]))) best = i;
  }
  return best;
}

void launch(cublasLtHandle_t handle, const GemmKey& key, const Problem& problem, const cublasLtMatmulAlgo_t& algorithm,
            const GemmPointers& p) {
  const float alpha = 1.0f, beta = key.accumulate ? 1.0f : 0.0f;
  check_lt(cublasLtMatmul(handle, problem.operation.get(), &alpha, p.b, problem.first.get(), p.a, problem.second.get(),
                          &beta, p.c, problem.out.get(), p.c, problem.out.get(), &algorithm, p.workspace,
                          static_cast<size_t>(key.workspace), p.stream),
           "launching");
}

// Device memory for as long as candidates are compared; null where there is none left.
class Spare {
 public:
  explicit Spare(size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return;
    (void)cudaGetLastError();
    data_ = nullptr;
  }
  ~Spare() { (void)cudaFree(data_); }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// A row of launches between two events.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreate(&begin_), "tuning a matrix product");
    check(cudaEventCreate(&end_), "tuning a matrix product");
  }
  ~Stopwatch() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  template <class F>
  double ms(int runs, const F& f) {
    check(cudaEventRecord(begin_, stream_), "tuning a matrix product");
    for (int i = 0; i < runs; ++i) f();
    check(cudaEventRecord(end_, stream_), "tuning a matrix product");
    check(cudaEventSynchronize(end_), "tuning a matrix product");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "tuning a matrix product");
    return static_cast<double>(ms) / runs;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Runs each candidate for a while into a c of its own and returns the fastest of those that give the same bits as the
// one that would be taken untimed: which one wins on a noisy machine then changes nothing but the time.
size_t fastest(cublasLtHandle_t handle, const GemmKey& key, const Problem& problem,
               const std::vector<cublasLtMatmulHeuristicResult_t>& choices, size_t untimed, GemmPointers p) {
  const int64_t unit = key.out_type == CUDA_R_32F ? 4 : 2;
  const auto bytes = static_cast<size_t>(((key.m - 1) * key.ldc + key.n) * unit);
  const Spare first(bytes), own(bytes);
  if (first.get() == nullptr || own.get() == nullptr) return untimed;
  const auto run = [&](size_t i, void* c) {
    p.c = c;
    launch(handle, key, problem, choices[i].algo, p);
  };
  const auto once = [&](size_t i, void* c) {
    check(cudaMemsetAsync(c, 0, bytes, p.stream), "tuning a matrix product");
    run(i, c);
  };
  once(untimed, first.get());
  std::vector<size_t> equal;
  for (size_t i = 0; i < choices.size(); ++i) {
    once(i, own.get());
    if (same_bytes(first.get(), own.get(), bytes, p.stream)) equal.push_back(i);
  }
  Stopwatch watch(p.stream);
  const double about_ms = watch.ms(2, [&] { run(untimed, own.get()); });
  const int runs = static_cast<int>(std::clamp(kTuneMs / std::max(about_ms, 1e-3), 4.0, 1000.0));
  size_t best = untimed;
  double best_ms = std::numeric_limits<double>::infinity();
  // The first round only loads the chip: whoever runs on one that has just woken up runs at higher clocks.
  for (const bool counts : {false, true}) {
    for (const size_t i : equal) {
      const double ms = watch.ms(runs, [&] { run(i, own.get()); });
      if (counts && ms < best_ms) best = i, best_ms = ms;
    }
  }
  return best;
}

// Tuned choices as text, one per line: what the key holds, then the algorithm's bytes.
std::string line_of(const GemmKey& key) {
  std::ostringstream line;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, key.device), "device cuda");
  std::string name = properties.name;
  for (char& c : name) c = c == ' ' ? '_' : c;
  line << name << ' ' << cublasLtGetVersion() << ' ' << key.m << ' ' << key.n << ' ' << key.k << ' ' << key.lda << ' '
       << key.ldb << ' ' << key.ldc << ' ' << key.workspace << ' ' << key.in_type << ' ' << key.out_type << ' '
       << key.align_a << ' ' << key.align_b << ' ' << key.align_c << ' ' << key.a_transposed << key.b_transposed
       << key.accumulate << key.bias;
  return line.str();
}

class Algorithms {
 public:
  struct Found {
    const Problem& problem;
    cublasLtHandle_t handle;
  };
  Found find(const GemmKey& key, const GemmPointers& pointers) {
    const std::lock_guard lock(mutex_);
    const auto known = problems_.find(key);
    if (known != problems_.end()) return {known->second, handle(key.device)};
    Problem problem = describe(key);
    const char* file = std::getenv("TIGON_GEMM_FILE");
    const bool tune = gemm_tunes();
    if (file == nullptr || !read(file, key, problem)) {
      const auto choices = candidates(handle(key.device), key, problem);
      const bool timed = tune && choices.size() > 1 && !is_capturing(pointers.stream);
      size_t chosen = preferred(key, choices);
      if (timed && key.bias) set(problem.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
      if (timed) chosen = fastest(handle(key.device), key, problem, choices, chosen, pointers);
      problem.algorithm = choices[chosen].algo;
      if (file != nullptr && timed) write(file, key, problem);
    }
    return {problems_.emplace(key, std::move(problem)).first->second, handle(key.device)};
  }

 private:
  // The mutex is held.
  cublasLtHandle_t handle(int device) {
    cublasLtHandle_t& made = handles_[device];
    if (made != nullptr) return made;
    const AllowInCapture allow;  // starting takes memory
    check_lt(cublasLtCreate(&made), "starting");
    return made;
  }

  // A line that does not fit, a damaged one included, is as good as none: the choice is then made anew.
  bool read(const char* file, const GemmKey& key, Problem& problem) {
    std::ifstream in(file);
    const std::string wanted = line_of(key) + ' ';
    for (std::string line; std::getline(in, line);) {
      if (line.compare(0, wanted.size(), wanted) != 0) continue;
      const std::string hex = line.substr(wanted.size());
      if (hex.size() != 2 * sizeof problem.algorithm) continue;
      auto* bytes = reinterpret_cast<unsigned char*>(&problem.algorithm);
      bool good = true;
      for (size_t i = 0; i < sizeof problem.algorithm && good; ++i) {
        unsigned value = 0;
        good = std::sscanf(hex.c_str() + 2 * i, "%2x", &value) == 1;
        bytes[i] = static_cast<unsigned char>(value);
      }
      cublasLtMatmulHeuristicResult_t result{};
      if (good &&
          cublasLtMatmulAlgoCheck(handle(key.device), problem.operation.get(), problem.first.get(),
                                  problem.second.get(), problem.out.get(), problem.out.get(), &problem.algorithm,
                                  &result) == CUBLAS_STATUS_SUCCESS &&
          result.workspaceSize <= static_cast<size_t>(key.workspace))
        return true;
    }
    return false;
  }

  static void write(const char* file, const GemmKey& key, const Problem& problem) {
    std::ofstream out(file, std::ios::app);
    std::string line = line_of(key) + ' ';
    const auto* bytes = reinterpret_cast<const unsigned char*>(&problem.algorithm);
    char hex[3];
    for (size_t i = 0; i < sizeof problem.algorithm; ++i) {
      std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned>(bytes[i]));
      line += hex;
    }
    out << line + '\n';
    out.flush();
    if (!out) std::fprintf(stderr, "tigon: the matrix product's tuned algorithm could not be written to %s\n", file);
  }

  std::mutex mutex_;
  std::map<GemmKey, Problem> problems_;
  std::map<int, cublasLtHandle_t> handles_;
};

}  // namespace

void run_gemm(const GemmKey& key, const GemmPointers& pointers) {
  // Never destroyed: at exit the driver may be gone before it.
  static auto& algorithms = *new Algorithms;
  const auto [problem, handle] = algorithms.find(key, pointers);
  if (pointers.bias != nullptr) {
    // The bias is the one pointer that the description holds; other threads may be using it.
    Problem mine = describe(key);
    set(mine.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
    return launch(handle, key, mine, problem.algorithm, pointers);
  }
  launch(handle, key, problem, problem.algorithm, pointers);
}

}  // namespace tigon::cuda
