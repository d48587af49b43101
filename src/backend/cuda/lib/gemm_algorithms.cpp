#include "backend/cuda/lib/gemm_algorithms.hpp"

#include <cublasLt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
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

constexpr int kCandidates = 12;
constexpr int kTuneRuns = 6;

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

// The library's choices, best first by its own estimate.
std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, const GemmKey& key, const Problem& problem,
                                             int count) {
  cublasLtMatmulPreference_t made = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&made), "stating preferences");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(key.workspace));
  // Partial sums meet in the workspace in f32 and in order: the other schemes round them or let them race.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
  int returned = 0;
  check_lt(cublasLtMatmulAlgoGetHeuristic(handle, problem.operation.get(), problem.first.get(), problem.second.get(),
                                          problem.out.get(), problem.out.get(), preference.get(), count, found.data(),
                                          &returned),
           "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < returned; ++i) {
    if (found[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(found[static_cast<size_t>(i)].algo);
  }
  if (algorithms.empty()) check_lt(CUBLAS_STATUS_NOT_SUPPORTED, "choosing an algorithm");
  return algorithms;
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

// Runs each candidate a few times into a c of its own and returns the fastest by its median, of those that give the
// same bits as the first: which one wins on a noisy machine then changes nothing but the time.
cublasLtMatmulAlgo_t fastest(cublasLtHandle_t handle, const GemmKey& key, const Problem& problem,
                             const std::vector<cublasLtMatmulAlgo_t>& algorithms, GemmPointers p) {
  const int64_t unit = key.out_type == CUDA_R_32F ? 4 : 2;
  const auto bytes = static_cast<size_t>(((key.m - 1) * key.ldc + key.n) * unit);
  const Spare first(bytes), own(bytes);
  if (first.get() == nullptr || own.get() == nullptr) return algorithms[0];
  const auto once = [&](const cublasLtMatmulAlgo_t& algorithm, void* c) {
    check(cudaMemsetAsync(c, 0, bytes, p.stream), "tuning a matrix product");
    p.c = c;
    launch(handle, key, problem, algorithm, p);
  };
  once(algorithms[0], first.get());
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "tuning a matrix product");
  check(cudaEventCreate(&end), "tuning a matrix product");
  size_t best = 0;
  float best_ms = 0;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    once(algorithms[i], own.get());
    if (i > 0 && !same_bytes(first.get(), own.get(), bytes, p.stream)) continue;
    std::vector<float> times;
    for (int run = 0; run < kTuneRuns; ++run) {
      check(cudaEventRecord(begin, p.stream), "tuning a matrix product");
      launch(handle, key, problem, algorithms[i], p);
      check(cudaEventRecord(end, p.stream), "tuning a matrix product");
      check(cudaEventSynchronize(end), "tuning a matrix product");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "tuning a matrix product");
      times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    const float ms = times[times.size() / 2];
    if (i == 0 || ms < best_ms) best = i, best_ms = ms;
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return algorithms[best];
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
  const Problem& find(const GemmKey& key, const GemmPointers& pointers) {
    const std::lock_guard lock(mutex_);
    const auto known = problems_.find(key);
    if (known != problems_.end()) return known->second;
    Problem problem = describe(key);
    const char* file = std::getenv("TIGON_GEMM_FILE");
    const bool tune = gemm_tunes();
    if (file == nullptr || !read(file, key, problem)) {
      const auto choices = candidates(handle(key.device), key, problem, tune ? kCandidates : 1);
      const bool timed = tune && choices.size() > 1 && !is_capturing(pointers.stream);
      if (timed && key.bias) set(problem.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
      problem.algorithm = timed ? fastest(handle(key.device), key, problem, choices, pointers) : choices[0];
      if (file != nullptr && timed) write(file, key, problem);
    }
    return problems_.emplace(key, std::move(problem)).first->second;
  }

  cublasLtHandle_t handle(int device) {
    cublasLtHandle_t& made = handles_[device];
    if (made == nullptr) check_lt(cublasLtCreate(&made), "starting");
    return made;
  }

 private:
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
  const Problem& problem = algorithms.find(key, pointers);
  if (pointers.bias != nullptr) {
    // The bias is the one pointer that the description holds; other threads may be using it.
    Problem mine = describe(key);
    set(mine.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
    return launch(algorithms.handle(key.device), key, mine, problem.algorithm, pointers);
  }
  launch(algorithms.handle(key.device), key, problem, problem.algorithm, pointers);
}

}  // namespace tigon::cuda
