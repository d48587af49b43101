#pragma once

#include <map>
#include <string>
#include <vector>

#include "op_case.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::test {

enum class Variant { fused, unfused };

// How the tensors of a case are laid out in memory.
enum class Layout {
  packed,  // contiguous and aligned
  odd,     // rows of the storage type padded, everything at an odd element offset
};

// The memory and tensors of one run of a case. Inputs and upstream gradients are the same numbers for every dtype, up
// to rounding: the values are drawn in f32, rounded to `rounding`, and stored as `dtype`.
class CaseData {
 public:
  CaseData(const bench::OpCase& op_case, DType dtype, DType rounding, Layout layout = Layout::packed);

  // Forward and backward, from the original inputs: what an earlier run wrote over is put back first.
  void run(const Context& ctx, Variant variant = Variant::fused);
  // Forward and backward by the op's single call.
  void run_full(const Context& ctx);

  const bench::Tensors& tensors() const { return tensors_; }
  // Names of what the run wrote: outputs, inputs changed in place, gradients.
  const std::vector<std::string>& results() const { return results_; }
  // The same for a variant, which may report less.
  std::vector<std::string> results(Variant variant) const;
  // All elements of a tensor as doubles, row by row.
  std::vector<double> values(const std::string& name) const;
  void set_value(const std::string& name, int64_t element, double value);
  // The bits of all results, for bitwise comparison.
  std::vector<std::vector<std::byte>> result_bits() const;

 private:
  Tensor allocate(const bench::Slot& slot, const std::string& name, Layout layout);
  void restore_inputs(const Context& ctx);

  bench::OpCase case_;
  DType dtype_;
  std::vector<std::vector<std::byte>> memory_;
  bench::Tensors tensors_;
  std::vector<std::string> results_;
  std::map<std::string, std::vector<double>> originals_;  // of inputs that are changed in place
};

// Each check reports through GoogleTest and names the case.
void check_finite_differences(const bench::OpCase& op_case);
void check_against_reference(const bench::OpCase& op_case, DType dtype, Variant variant, Layout layout);
void check_full_call(const bench::OpCase& op_case, DType dtype);
void check_thread_counts(const bench::OpCase& op_case, DType dtype);
void check_plan(const bench::OpCase& op_case, DType dtype, Variant variant);

}  // namespace tigon::test
