#pragma once

#include <map>
#include <string>
#include <vector>

#include "op_case.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/ops/device_memory.hpp"

namespace tigon::test {

enum class Variant { fused, unfused };

// How the tensors of a case are laid out in memory.
enum class Layout {
  packed,   // contiguous and aligned
  shifted,  // contiguous, everything at an odd element offset
  odd,      // the same with rows of the storage type padded
};

// The memory and tensors of one run of a case. Inputs and upstream gradients are the same numbers for every dtype, up
// to rounding: the values are drawn in f32, rounded to `rounding`, and stored as `dtype`. On a GPU each tensor has a
// twin there, laid out alike: a run sends everything over, works on the twins and fetches everything back.
class CaseData {
 public:
  CaseData(const bench::OpCase& op_case, DType dtype, DType rounding, Layout layout = Layout::packed,
           Device device = {});

  // Forward and backward, from the original inputs: what an earlier run wrote over is put back first.
  void run(const Context& ctx, Variant variant = Variant::fused);
  // Forward and backward by the op's single call.
  void run_full(const Context& ctx);

  // The three parts of a run on a GPU.
  void upload(const Context& ctx);
  void run_ops(const Context& ctx, Variant variant);
  void download(const Context& ctx);

  // On the host.
  const bench::Tensors& tensors() const { return tensors_; }
  // Names of what the run wrote: outputs, inputs changed in place, gradients.
  const std::vector<std::string>& results() const { return results_; }
  // The same for a variant, which may report less.
  std::vector<std::string> results(Variant variant) const;
  // All elements of a tensor as doubles, row by row.
  std::vector<double> values(const std::string& name) const;
  void set_value(const std::string& name, int64_t element, double value);
  // Whether what lies around and between rows is as it was before the run.
  bool surroundings_untouched() const;
  // The bits of all results, for bitwise comparison.
  std::vector<std::vector<std::byte>> result_bits() const;

 private:
  Tensor allocate(const bench::Slot& slot, const std::string& name, Layout layout);
  void restore_inputs(const Context& ctx);

  // What the ops work on.
  const bench::Tensors& used() const { return twins_.empty() ? tensors_ : device_tensors_; }

  // A tensor's block on the GPU and where its bytes are on the host.
  struct Twin {
    DeviceMemory memory;
    std::byte* host;
    Tensor tensor;  // on the host
  };

  bench::OpCase case_;
  DType dtype_;
  Device device_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Twin> twins_;
  bench::Tensors tensors_;
  bench::Tensors device_tensors_;
  std::vector<std::string> results_;
  std::map<std::string, std::vector<double>> originals_;  // of inputs that are changed in place
};

// Each check reports through GoogleTest and names the case.
void check_finite_differences(const bench::OpCase& op_case);
void check_against_reference(const bench::OpCase& op_case, DType dtype, Variant variant, Layout layout);
void check_full_call(const bench::OpCase& op_case, DType dtype);
void check_thread_counts(const bench::OpCase& op_case, DType dtype);
void check_plan(const bench::OpCase& op_case, DType dtype, Variant variant);

// On a GPU. Why the device cannot run this case: no GPU, or an op that its backend lacks; empty when it can.
std::string cannot_run(const bench::OpCase& op_case, Variant variant, Device device, DType dtype = DType::bf16);
// Scratch is planned and lies in GPU memory filled with NaN; results are compared with the reference on the CPU.
void check_on_device(const bench::OpCase& op_case, DType dtype, Variant variant, Layout layout, Device device);
void check_full_call_on_device(const bench::OpCase& op_case, DType dtype, Device device,
                               Layout layout = Layout::packed);
// Two runs give the same bits, and so does a run recorded in a graph: ops neither wait nor allocate.
void check_repeats_on_device(const bench::OpCase& op_case, DType dtype, Device device);

}  // namespace tigon::test
