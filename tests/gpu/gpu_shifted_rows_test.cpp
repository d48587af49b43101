// Rows that do not begin at multiples of 16 bytes: odd widths, where each row begins elsewhere, and tensors that begin
// one element late. Every check also sees that what lies around and between the rows is left alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gpu/gpu_fixture.hpp"
#include "ops/case_runner.hpp"
#include "tigon/core/philox.hpp"

namespace tigon::test {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
using Layouts = std::initializer_list<Layout>;
constexpr Layouts kEveryLayout = {Layout::packed, Layout::shifted, Layout::odd};
constexpr Layouts kTwoLayouts = {Layout::packed, Layout::odd};  // for long rows, whose tests take longer
constexpr Layouts kPacked = {Layout::packed};

std::vector<bench::OpTable> norm_tables() {
  return {bench::rmsnorm_table(), bench::add_rmsnorm_table(), bench::layernorm_table()};
}
std::vector<bench::OpTable> row_tables() {
  std::vector<bench::OpTable> tables = norm_tables();
  tables.push_back(bench::softmax_table());
  tables.push_back(bench::cross_entropy_table());
  return tables;
}

class GpuShiftedRows : public GpuTest {
 protected:
  static void check(bench::OpCase c, Layouts layouts = kEveryLayout) {
    c.arithmetic_tolerance = std::max(c.arithmetic_tolerance, 32.0);
    for (const DType dtype : kTypes) {
      for (const Layout layout : layouts) {
        check_on_device(c, dtype, Variant::fused, layout, kGpu);
        if (c.full) check_full_call_on_device(c, dtype, kGpu, layout);
      }
    }
  }
  static void check_options(const bench::OpTable& table, std::initializer_list<const char*> shapes,
                            Layouts layouts = kEveryLayout) {
    for (const char* shape : shapes) {
      check(table.make(shape), layouts);
      for (const bench::OpCase& c : table.every_option(shape)) check(c, layouts);
    }
  }
};

// Below, results are differences of equal numbers, of which only the rounding is left: a softmax of one class, a layer
// norm of two values.
int least_width(const bench::OpTable& table) {
  return table.op == "layernorm" ? 3 : table.op == "cross_entropy" ? 2 : 1;
}

// One row, fewer rows than there are places to begin at, and more.
TEST_F(GpuShiftedRows, EveryWidthUpTo40) {
  for (const bench::OpTable& table : row_tables()) {
    for (const int rows : {1, 3, 19}) {
      for (int width = least_width(table); width <= 40; ++width) {
        if (rows < 19 && width > 18) break;
        check(table.make(std::to_string(rows) + "x" + std::to_string(width)));
      }
    }
  }
}

TEST_F(GpuShiftedRows, EveryOptionOfSmallRows) {
  for (const bench::OpTable& table : row_tables()) {
    if (least_width(table) == 1) check_options(table, {"19x1"});
    check_options(table, {"19x3", "19x7", "19x8", "19x9", "19x17", "19x33", "19x39"});
  }
}

// For blocks that hold their row, for teams of each size, and the longest that those hold.
TEST_F(GpuShiftedRows, EveryOptionOfVocabularies) {
  check_options(
      bench::cross_entropy_table(),
      {"11x4095", "11x4097", "5x16385", "5x20479", "5x32003", "9x50257", "2x81921", "2x122881", "2x151669", "2x262141"},
      kTwoLayouts);
}

TEST_F(GpuShiftedRows, EveryOptionOfNormRows) {
  for (const bench::OpTable& table : norm_tables()) {
    check_options(table,
                  {"140x249", "140x255", "140x257", "140x895", "140x4095", "140x4097", "140x8191", "11x12289",
                   "11x16377", "11x16383", "3x32761", "3x65535"},
                  kTwoLayouts);
  }
}

// More rows than the GPU has blocks, teams or groups of threads: each takes several, from other places of 16 bytes.
TEST_F(GpuShiftedRows, ManyRows) {
  for (const bench::OpTable& table : norm_tables()) {
    for (const char* shape : {"9001x63", "2503x257", "1063x1023", "541x4095", "301x8191", "151x16383"}) {
      check(table.make(shape), kPacked);
      for (const DType dtype : kTypes) check_repeats_on_device(table.make(shape), dtype, kGpu);
    }
  }
  const bench::OpTable loss = bench::cross_entropy_table();
  for (const char* shape : {"601x4099", "301x16387:in_place", "101x50257", "67x128255:in_place"}) {
    check(loss.make(shape), kPacked);
    for (const DType dtype : kTypes) check_repeats_on_device(loss.make(shape), dtype, kGpu);
  }
  check(bench::softmax_table().make("301x16387"), kPacked);
}

// In the vectors that a row shares with its neighbours, or that reach outside of the tensor.
TEST_F(GpuShiftedRows, TargetsAtTheEnds) {
  for (const int64_t width : {3, 17, 4097, 20479, 32003, 50257, 151669}) {
    for (const int64_t back : {1, 2, 3}) {  // from either end
      bench::OpCase c = bench::cross_entropy_table().make("9x" + std::to_string(width));
      c.inputs[1].fill.value = [=](int64_t e) { return static_cast<double>(e % 2 == 0 ? width - back : back - 1); };
      check(c);
    }
  }
}

// NaN and infinity stay in their rows: neighbours share 16 bytes.
TEST_F(GpuShiftedRows, RowsKeepToThemselves) {
  constexpr int64_t kRows = 33;
  const auto run = [](const bench::OpCase& c, DType dtype) {
    CaseData data(c, dtype, dtype, Layout::packed, kGpu);
    DeviceArena arena(kGpu);
    data.run({.device = kGpu, .memory = &arena});
    std::map<std::string, std::vector<double>> results;
    for (const std::string& name : data.results()) results[name] = data.values(name);
    return results;
  };
  for (const bench::OpTable& table : row_tables()) {
    for (const int64_t width : {1, 5, 13, 999, 4095, 32003}) {
      const bench::OpCase clean = table.make(std::to_string(kRows) + "x" + std::to_string(width));
      bench::OpCase dirty = clean;
      bench::Slot& input = dirty.inputs.front();
      const RandomStream random{.seed = 11, .step = 0, .tensor = 0};
      const auto value = [=](int64_t e) { return static_cast<double>(random.normal(static_cast<uint64_t>(e))); };
      bench::OpCase same = clean;
      same.inputs.front().fill.value = value;
      input.fill.value = [=](int64_t e) {
        const double strange[] = {std::nan(""), std::numeric_limits<double>::infinity()};
        return e / width % 2 == 1 ? strange[e / width / 2 % 2] : value(e);
      };
      for (const DType dtype : kTypes) {
        SCOPED_TRACE(clean.name() + " " + std::string(to_string(dtype)));
        const auto expected = run(same, dtype), got = run(dirty, dtype);
        for (const auto& [name, values] : expected) {
          if (values.size() % kRows != 0) continue;  // not row by row: a sum over tokens
          const size_t columns = values.size() / kRows;
          for (size_t e = 0; e < values.size(); ++e) {
            if (e / columns % 2 == 1) continue;
            const double other = got.at(name)[e];
            ASSERT_TRUE(other == values[e] || (std::isnan(other) && std::isnan(values[e])))
                << name << " element " << e << ": " << other << " is not " << values[e];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tigon::test
