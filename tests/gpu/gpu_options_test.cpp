// Every option of every op on a GPU at the sizes of models. The small cases of the tables run other kernels: rows there
// belong to one block, and no vector is left partly filled.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"

namespace tigon::test {
namespace {

class GpuOptions : public GpuTest {
 protected:
  static void check(const bench::OpTable& table, std::initializer_list<const char*> shapes, Layout layout,
                    double tolerance = 4.0) {
    for (const char* shape : shapes) {
      std::vector<bench::OpCase> cases = table.every_option(shape);
      cases.push_back(table.make(shape));
      for (bench::OpCase& c : cases) {
        c.tolerance = std::max(c.tolerance, tolerance);
        c.arithmetic_tolerance = std::max(c.arithmetic_tolerance, 32.0);
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
          check_on_device(c, dtype, Variant::fused, layout, kGpu);
          if (c.full) check_full_call_on_device(c, dtype, kGpu, layout);
        }
      }
    }
  }
};

// Real vocabularies, odd ones, the last that one block of a team holds and one more (in 16 bits and in f32).
TEST_F(GpuOptions, CrossEntropyOfRealVocabularies) {
  check(bench::cross_entropy_table(),
        {"5x20480", "5x20488", "5x24000", "5x32000", "5x32003", "5x50257", "5x50304", "5x100352", "5x128256",
         "5x129280", "5x151936", "5x163848", "5x200064", "5x256000", "3x262144"},
        Layout::packed);
  check(bench::cross_entropy_table(), {"3x32000", "3x50257", "3x128256", "3x151936"}, Layout::odd);
}

TEST_F(GpuOptions, FusedLinearCrossEntropyOfRealVocabularies) {
  check(bench::fused_linear_cross_entropy_table(),
        {"5x8x20488", "5x8x32000", "5x8x32001", "5x8x32003", "5x8x50257", "5x8x100352", "5x8x128256", "5x8x151669",
         "5x8x151936", "5x8x200064", "5x8x256000"},
        Layout::packed);
}

TEST_F(GpuOptions, SoftmaxOfRealVocabularies) {
  check(bench::softmax_table(), {"3x16392", "3x32000", "3x50257", "3x128256", "3x151936"}, Layout::packed);
}

TEST_F(GpuOptions, NormsOfRealRows) {
  for (const bench::OpTable& table : {bench::rmsnorm_table(), bench::add_rmsnorm_table(), bench::layernorm_table()}) {
    const auto shapes = {"140x128", "140x896", "140x2048", "140x4095", "140x4096",
                         "7x8192",  "7x12288", "7x16384",  "3x32768"};
    check(table, shapes, Layout::packed);
    check(table, {"140x2048", "7x4096", "7x16384"}, Layout::odd);
  }
}

TEST_F(GpuOptions, RopeOfRealHeads) {
  check(bench::rope_table(), {"2x37x32x8x64", "2x37x32x8x128", "1x9x16x16x256", "1x37x8x4x96"}, Layout::packed);
}

TEST_F(GpuOptions, GatesOfRealRows) {
  for (const bench::OpTable& table : {bench::swiglu_table(), bench::geglu_table()}) {
    check(table, {"33x8192", "33x11008", "33x14336", "17x11007"}, Layout::packed);
  }
}

TEST_F(GpuOptions, AdamwOfRealMatrices) {
  check(bench::adamw_table(), {"4194304", "999999"},
        Layout::packed);  // the first is more than all threads hold at once
  check(bench::adamw_table(), {"999999"}, Layout::odd);
}

// Tensor cores take P and dS rounded to 16 bits: among this many results a few are off by more than 4 units.
TEST_F(GpuOptions, AttentionOfRealHeads) {
  check(bench::attention_table(), {"1x300x8x2x64", "1x300x8x2x128", "1x129x4x4x256", "1x200x4x2x96"}, Layout::packed,
        6.0);
}

}  // namespace
}  // namespace tigon::test
