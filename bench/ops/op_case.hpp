#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tigon/core/context.hpp"
#include "tigon/ops/unfused.hpp"

// One row of an op's case table, as data: what goes in, what comes out, how to call it. The same rows feed the gradient
// checks, the comparison with the reference, the determinism tests, the memory plan and the timing.
namespace tigon::bench {

// How a slot's type follows from the case's storage type.
enum class Role {
  storage,    // the storage type itself
  statistic,  // f32 (f64 when the storage type is f64)
  index,      // i64
  place,      // i32
  code,       // u8, numbers of a table: filled like an index, and a result may be off by one
};

// What a slot is filled with: mean + deviation·normal, or for an index slot integers in [0, limit), a share of them
// `ignored` (set to -100).
struct Fill {
  double mean = 0.0;
  double deviation = 1.0;
  double grid = 0.0;  // when set, rounded to a multiple of it: sums of such values are exact also in 16 bits
  int64_t limit = 1;
  double ignored = 0.0;
  bool sequence = false;                           // 0, 1, 2, … modulo limit instead of random
  std::function<double(int64_t element)> value{};  // given element by element instead, row-major
};

struct Slot {
  std::string name{};
  std::vector<int64_t> sizes{};
  Role role = Role::storage;
  Fill fill{};
  // An input that has a gradient "d<name>", written by backward; or an output whose gradient "d<name>" backward reads.
  bool differentiable = false;
  bool wide_gradient = false;  // "d<name>" is f32 whatever the storage type
  bool in_place = false;       // an input that forward writes over: what it then holds is a result
  bool fused_only = false;     // an output that the unfused form does not report
};

// The tensors of one case by name. Asking for a name that is not there gives an absent tensor.
class Tensors {
 public:
  void set(const std::string& name, const Tensor& t) { by_name_[name] = t; }
  Tensor operator[](const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? Tensor{} : found->second;
  }

 private:
  std::map<std::string, Tensor> by_name_;
};

// The least work an op can do: bytes that must move between the op and memory, and multiply-add FLOPs of its GEMMs.
struct Work {
  int64_t bytes = 0;
  int64_t flops = 0;
};

using Run = std::function<void(const Context&, const Tensors&)>;
using UnfusedRun = std::function<void(const Context&, const Tensors&, ops::unfused::Tape&)>;

struct OpCase {
  std::string op{};     // "rmsnorm"
  std::string shape{};  // "16384x2048"
  std::string flags{};  // what is special about this case; empty for the usual one
  std::vector<Slot> inputs{};
  std::vector<Slot> outputs{};
  Run forward{};
  Run backward{};  // empty for ops without one
  // Forward and backward as one call, for ops that can; timed as "full" instead of forward + backward.
  Run full{};
  UnfusedRun unfused_forward{};
  UnfusedRun unfused_backward{};
  // For a storage type of `size` bytes.
  std::function<Work(int64_t size)> forward_work{};
  std::function<Work(int64_t size)> backward_work{};
  std::function<Work(int64_t size)> full_work{};  // empty: forward + backward
  // Allowed error in units of the storage type (tests only): |got − exact| <= tolerance·eps·(|exact| + rms(exact)).
  double tolerance = 4.0;
  // What the arithmetic inside may lose whatever the storage type, in units of f32: for ops whose sums are long.
  double arithmetic_tolerance = 0.0;
  // How often a result is rounded to the storage type: also as the input that an earlier call wrote.
  int roundings = 1;
  // Size of the terms that cancel in a result; it counts like rms(exact).
  double cancelling = 0.0;
  // The unfused form passes intermediates through the storage type, so that its f32 results are only as exact as that.
  bool unfused_rounds = false;
  // So does the fused form on a GPU.
  bool gpu_rounds = false;
  // The tolerance of the unfused form, where rounding its intermediates costs more. 0: tolerance.
  double unfused_tolerance = 0.0;
  std::string name() const { return op + " " + shape + (flags.empty() ? "" : " " + flags); }
};

// All that is known about one op.
struct OpTable {
  std::string op{};
  std::string shape_help{};                          // "TOKENSxHIDDEN"
  std::vector<std::string> bench_shapes{};           // timed by default
  std::function<OpCase(const std::string&)> make{};  // a case from a shape in that form; throws Error on a bad one
  // Every option of the op at a shape: kernels differ with the size, so options are tried at the sizes of models too.
  std::function<std::vector<OpCase>(const std::string&)> every_option{};
  std::vector<OpCase> test_cases{};  // small and odd shapes, every option

  void test_options_at(const std::string& shape) {
    for (OpCase& c : every_option(shape)) test_cases.push_back(std::move(c));
  }
};

// "16384x2048" into its numbers, exactly `count` of them, each at least 1.
std::vector<int64_t> parse_shape(const std::string& op, const std::string& text, size_t count, const std::string& help);

OpTable rmsnorm_table();
OpTable softmax_table();
OpTable cross_entropy_table();
OpTable linear_table();
OpTable fused_linear_cross_entropy_table();
OpTable embedding_table();
OpTable attention_table();
OpTable adamw_table();
OpTable global_norm_table();
OpTable scale_table();
OpTable nf4_quantize_table();
OpTable nf4_dequantize_table();
OpTable add_rmsnorm_table();
OpTable layernorm_table();
OpTable rope_table();
OpTable swiglu_table();
OpTable geglu_table();

// Every op, in the order of the documentation.
const std::vector<OpTable>& all_tables();

}  // namespace tigon::bench
