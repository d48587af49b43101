#include "tigon/ops/nf4.hpp"

#include "backend/dynamic_map.hpp"
#include "backend/nf4_levels.hpp"
#include "ops/check.hpp"
#include "ops/route.hpp"

namespace tigon::ops {

namespace {

// `values`: x or y, which says how many elements there are.
void check_all(const Check& check, const char* name, const Tensor& values, const Nf4& nf4) {
  check.tensor(name, values, {-1}, "[n]");
  check.floating(name, values);
  check.contiguous(name, values);
  const int64_t n = values.sizes[0];
  check.tensor("codes", nf4.codes, {n / 2 + n % 2}, "two in a byte");
  check.dtype_is("codes", nf4.codes, DType::u8);
  check.tensor("scale_codes", nf4.scale_codes, {nf4_blocks(n)}, "one for 64 elements");
  check.dtype_is("scale_codes", nf4.scale_codes, DType::u8);
  check.tensor("group_scales", nf4.group_scales, {nf4_groups(n)}, "one for 16384 elements");
  check.statistic("group_scales", nf4.group_scales, values);
  check.tensor("offset", nf4.offset, {1});
  check.statistic("offset", nf4.offset, values);
  const std::pair<const char*, const Tensor*> arrays[] = {{"codes", &nf4.codes},
                                                          {"scale_codes", &nf4.scale_codes},
                                                          {"group_scales", &nf4.group_scales},
                                                          {"offset", &nf4.offset},
                                                          {name, &values}};
  for (size_t i = 0; i < std::size(arrays); ++i) {
    check.contiguous(arrays[i].first, *arrays[i].second);
    for (size_t j = 0; j < i; ++j) check.apart(arrays[i].first, *arrays[i].second, arrays[j].first, *arrays[j].second);
  }
}

}  // namespace

void nf4_quantize(const Context& ctx, const Nf4Quantize& args) {
  check_all(Check("nf4_quantize", ctx), "x", args.x, args.to);
  route(ctx, args, args.x.dtype, &Backend::nf4_quantize, "nf4_quantize", {&args.to.offset});
}

void nf4_dequantize(const Context& ctx, const Nf4Dequantize& args) {
  check_all(Check("nf4_dequantize", ctx), "y", args.y, args.from);
  route(ctx, args, args.y.dtype, &Backend::nf4_dequantize, "nf4_dequantize", {&args.y});
}

std::span<const float> nf4_levels() { return kNf4.levels; }
std::span<const float> nf4_scale_map() { return kSignedTables.map; }

}  // namespace tigon::ops
