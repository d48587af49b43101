#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

void scale(const Context& ctx, const ops::Scale& args) {
  if (ctx.measuring()) return;
  const double factor = at(args.factor, 0);
  if (factor == 1.0) return;
  for (int64_t e = 0; e < args.x.elements(); ++e) args.x.as<double>()[e] *= factor;
}

}  // namespace tigon::reference
