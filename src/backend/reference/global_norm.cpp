#include <algorithm>
#include <cmath>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

void global_norm(const Context& ctx, const ops::GlobalNorm& args) {
  if (ctx.measuring()) return;
  long double squares = 0;  // plain summation of millions of terms in f64 would be no reference
  int64_t piece = 0;
  for (const Tensor& t : args.tensors) {
    for (int64_t e = 0; e < t.elements(); ++e) {
      squares += static_cast<long double>(t.as<double>()[e]) * t.as<double>()[e];
      if (!args.pieces || ((e + 1) % ops::kNormPiece != 0 && e + 1 < t.elements())) continue;
      args.pieces.as<double>()[piece++] = static_cast<double>(squares);
      squares = 0;
    }
  }
  if (!args.norm) return;
  for (int64_t i = 0; args.pieces && i < args.pieces.elements(); ++i) squares += args.pieces.as<double>()[i];
  const double norm = std::abs(args.scale) * static_cast<double>(std::sqrt(squares));
  at(args.norm, 0) = norm;
  if (!args.clip) return;
  const double factor = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1.0;
  at(args.clip, 0) = std::isfinite(norm) ? factor * args.scale : 0.0;
}

}  // namespace tigon::reference
