#include <tigon/memory/arena.hpp>
#include <tigon/ops/rmsnorm.hpp>

int main() {
  float x[] = {3, 4}, y[2];
  tigon::HeapArena heap;
  const auto row = [](float* data) { return tigon::Tensor::contiguous(data, tigon::DType::f32, {1, 2}); };
  tigon::ops::rmsnorm_forward({.memory = &heap}, {.x = row(x), .y = row(y), .eps = 0});
  return y[0] / y[1] == 0.75f ? 0 : 1;
}
