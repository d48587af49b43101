#include "backend/nf4_levels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/dynamic_map.hpp"
#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// NaN where one value is.
double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::isnan(value) ? value : std::fmax(largest, std::abs(value));
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); }) ? kNaN : largest;
}

uint8_t nearest(const DynamicMap& map, double value) {
  size_t best = 0;
  const auto distance = [&](size_t code) { return std::abs(value - static_cast<double>(map[code])); };
  for (size_t code = 1; code < map.size(); ++code) {
    if (distance(code) < distance(best)) best = code;
  }
  return static_cast<uint8_t>(best);
}

}  // namespace

void nf4_quantize(const Context& ctx, const ops::Nf4Quantize& args) {
  if (ctx.measuring()) return;
  const int64_t n = args.x.sizes[0];
  auto* const codes = args.to.codes.as<uint8_t>();
  std::fill_n(codes, args.to.codes.sizes[0], uint8_t{0x07});  // behind an odd end stands zero
  std::vector<double> scales;
  double sum = 0;
  for (int64_t first = 0; first < n; first += ops::kNf4Block) {
    std::vector<double> block;
    for (int64_t e = first; e < std::min(n, first + ops::kNf4Block); ++e) block.push_back(at(args.x, e));
    double scale = largest_magnitude(block);
    const double by = 1 / std::max(static_cast<double>(kNf4Smallest), scale);
    if (static_cast<int64_t>(block.size()) < ops::kNf4Block) scale = std::max(static_cast<double>(kNf4Smallest), scale);
    for (size_t i = 0; i < block.size(); ++i) {
      int code = 0;
      for (const float middle : kNf4.middles) code += !(block[i] * by <= static_cast<double>(middle));
      uint8_t& byte = codes[(first + static_cast<int64_t>(i)) / 2];
      byte = static_cast<uint8_t>(i % 2 == 0 ? code << 4 | (byte & 15) : (byte & 0xf0) | code);
    }
    scales.push_back(scale);
    sum += scale;
  }
  const double offset = scales.empty() ? 0 : sum / static_cast<double>(scales.size());
  at(args.to.offset, 0) = std::isfinite(offset) ? offset : kNaN;
  const DynamicMap map = dynamic_map(true);
  for (size_t first = 0; first < scales.size(); first += ops::kNf4Group) {
    const size_t end = std::min(scales.size(), first + ops::kNf4Group);
    double group = 0;
    for (size_t b = first; b < end; ++b) group = std::max(group, std::abs(scales[b] - offset));
    if (group < static_cast<double>(std::numeric_limits<float>::min())) group = 0;
    at(args.to.group_scales, static_cast<int64_t>(first) / ops::kNf4Group) = std::isfinite(offset) ? group : kNaN;
    for (size_t b = first; b < end; ++b) {
      const double value = std::isfinite(offset) && group > 0 ? (scales[b] - offset) / group : 0;
      args.to.scale_codes.as<uint8_t>()[b] = nearest(map, value);
    }
  }
}

void nf4_dequantize(const Context& ctx, const ops::Nf4Dequantize& args) {
  if (ctx.measuring()) return;
  const DynamicMap map = dynamic_map(true);
  for (int64_t e = 0; e < args.y.sizes[0]; ++e) {
    const int64_t block = e / ops::kNf4Block;
    const double from_mean = static_cast<double>(map[args.from.scale_codes.as<uint8_t>()[block]]);
    const double scale = from_mean * at(args.from.group_scales, block / ops::kNf4Group) + at(args.from.offset, 0);
    const uint8_t byte = args.from.codes.as<uint8_t>()[e / 2];
    at(args.y, e) = static_cast<double>(kNf4.levels[e % 2 == 0 ? byte >> 4 : byte & 15]) * scale;
  }
}

}  // namespace tigon::reference
