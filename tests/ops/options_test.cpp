// Every option of every op at the sizes of models, few rows of them: what is tested small alone may take another path.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/case_runner.hpp"

namespace tigon::test {
namespace {

void check(const bench::OpTable& table, std::initializer_list<const char*> shapes) {
  for (const char* shape : shapes) {
    for (bench::OpCase& c : table.every_option(shape)) {
      c.arithmetic_tolerance = std::max(c.arithmetic_tolerance, 32.0);
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        check_against_reference(c, dtype, Variant::fused, Layout::packed);
        if (c.full) check_full_call(c, dtype);
      }
    }
  }
}

TEST(Options, CrossEntropyOfRealVocabularies) { check(bench::cross_entropy_table(), {"2x50257", "1x128256"}); }

TEST(Options, FusedLinearCrossEntropyOfRealVocabularies) {
  check(bench::fused_linear_cross_entropy_table(), {"3x4x32003", "2x2x128256"});
}

TEST(Options, SoftmaxOfRealVocabularies) { check(bench::softmax_table(), {"2x50257", "2x128256"}); }

TEST(Options, NormsOfRealRows) {
  for (const bench::OpTable& table : {bench::rmsnorm_table(), bench::add_rmsnorm_table(), bench::layernorm_table()}) {
    check(table, {"5x4095", "3x16384"});
  }
}

TEST(Options, GatesOfRealRows) {
  for (const bench::OpTable& table : {bench::swiglu_table(), bench::geglu_table()}) check(table, {"3x11008", "3x8191"});
}

TEST(Options, RopeOfRealHeads) { check(bench::rope_table(), {"1x9x4x2x64", "1x5x4x1x128"}); }

TEST(Options, AdamwOfRealMatrices) { check(bench::adamw_table(), {"262144", "99999"}); }

TEST(Options, AttentionOfRealHeads) { check(bench::attention_table(), {"1x130x4x2x64", "1x130x4x1x128"}); }

}  // namespace
}  // namespace tigon::test
