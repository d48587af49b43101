#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

void softmax_forward(const Context& ctx, const ops::SoftmaxForward& args) {
  if (ctx.measuring()) return;
  const int64_t rows = args.x.sizes[0], columns = args.x.sizes[1];
  for (int64_t i = 0; i < rows; ++i) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < columns; ++j) largest = std::max(largest, args.scale * at(args.x, i, j));
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j) sum += std::exp(args.scale * at(args.x, i, j) - largest);
    for (int64_t j = 0; j < columns; ++j) at(args.y, i, j) = std::exp(args.scale * at(args.x, i, j) - largest) / sum;
  }
}

void softmax_backward(const Context& ctx, const ops::SoftmaxBackward& args) {
  if (ctx.measuring()) return;
  const int64_t rows = args.y.sizes[0], columns = args.y.sizes[1];
  for (int64_t i = 0; i < rows; ++i) {
    double dot = 0;
    for (int64_t j = 0; j < columns; ++j) dot += at(args.dy, i, j) * at(args.y, i, j);
    for (int64_t j = 0; j < columns; ++j) at(args.dx, i, j) = args.scale * at(args.y, i, j) * (at(args.dy, i, j) - dot);
  }
}

}  // namespace tigon::reference
