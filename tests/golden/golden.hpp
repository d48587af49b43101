#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tigon/core/tensor.hpp"

// What PyTorch computed (make_golden.py, which says what the files look like), and how to hold an op against it.
namespace tigon::test {

// The memory of one tensor.
struct GoldenTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> sizes{};
  std::vector<std::byte> bytes{};

  Tensor view() { return Tensor::contiguous(bytes.data(), dtype, sizes); }
  double value(size_t i) const {
    switch (dtype) {
      case DType::f32: return at<float>(i);
      case DType::bf16: return static_cast<double>(at<bf16>(i));
      case DType::i32: return at<int32_t>(i);
      default: return static_cast<double>(at<int64_t>(i));
    }
  }
  size_t count() const { return bytes.size() / static_cast<size_t>(size_of(dtype)); }

 private:
  template <class T>
  T at(size_t i) const {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    return element;
  }
};

// One case: its inputs and PyTorch's results by name. Outputs of the op under test are made here, of the shape and type
// of the result they stand against, and compared when the case is done.
class GoldenCase {
 public:
  explicit GoldenCase(std::string case_name) : name(std::move(case_name)) {}

  // A tensor of the file; absent if it is not there.
  Tensor in(const std::string& key) {
    const auto found = tensors.find(key);
    return found == tensors.end() ? Tensor{} : found->second.view();
  }
  double scalar(const std::string& key) const { return scalars.at(key); }
  // The storage type of the case.
  DType dtype() const { return name.ends_with("bf16") ? DType::bf16 : DType::f32; }

  // A fresh tensor to be compared with `key`. It starts out as NaN (−1 for indices), so nothing passes by being left.
  Tensor out(const std::string& key) {
    GoldenTensor fresh = tensors.at(key);
    std::fill(fresh.bytes.begin(), fresh.bytes.end(), std::byte{0xff});
    return (outputs_[key] = std::move(fresh)).view();
  }
  // The same, but holding the values of `from`: what an op changes in place.
  Tensor in_place(const std::string& key, const std::string& from) { return (outputs_[key] = tensors.at(from)).view(); }
  // f32 memory that nothing is compared with.
  Tensor spare(std::initializer_list<int64_t> sizes) {
    spares_.emplace_back();
    Tensor t = Tensor::contiguous(nullptr, DType::f32, sizes);
    spares_.back().resize(static_cast<size_t>(t.elements()));
    t.data = spares_.back().data();
    return t;
  }

  // Every output against PyTorch's: |got − expected| <= units·eps·(|expected| + rms), eps of the case's storage type.
  void compare(double units) {
    for (const auto& [key, got] : outputs_) {
      const GoldenTensor& expected = tensors.at(key);
      double squares = 0;
      for (size_t i = 0; i < expected.count(); ++i) squares += expected.value(i) * expected.value(i);
      const double rms = std::sqrt(squares / std::max<double>(1.0, static_cast<double>(expected.count())));
      for (size_t i = 0; i < expected.count(); ++i) {
        const double allowed = units * epsilon(dtype()) * (std::abs(expected.value(i)) + rms);
        ASSERT_LE(std::abs(got.value(i) - expected.value(i)), allowed)
            << name << ": " << key << "[" << i << "] is " << got.value(i) << ", PyTorch has " << expected.value(i);
      }
    }
    outputs_.clear();
  }

  std::string name;
  std::map<std::string, GoldenTensor> tensors;
  std::map<std::string, double> scalars;

 private:
  std::map<std::string, GoldenTensor> outputs_;
  std::list<std::vector<float>> spares_;
};

// All cases of one op.
inline std::vector<GoldenCase> golden_cases(const std::string& op) {
  const std::string path = TIGON_SOURCE_DIR "/tests/golden/data/" + op + ".golden";
  std::ifstream file(path, std::ios::binary);
  std::vector<GoldenCase> cases;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind, key, dtype;
    words >> kind;
    if (kind == "case") {
      cases.emplace_back(line.substr(5));
    } else if (kind == "scalar") {
      words >> key >> cases.back().scalars[key];
    } else if (kind == "tensor") {
      words >> key >> dtype;
      GoldenTensor t{.dtype = dtype_from_string(dtype)};
      int64_t size = 0, bytes = size_of(t.dtype);
      while (words >> size) {
        t.sizes.push_back(size);
        bytes *= size;
      }
      t.bytes.resize(static_cast<size_t>(bytes));
      file.read(reinterpret_cast<char*>(t.bytes.data()), bytes);
      file.get();
      cases.back().tensors[key] = std::move(t);
    }
  }
  EXPECT_FALSE(cases.empty()) << "nothing could be read from " << path;
  return cases;
}

}  // namespace tigon::test
