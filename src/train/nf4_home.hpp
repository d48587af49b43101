#pragma once

#include <set>

#include "tigon/core/context.hpp"
#include "tigon/ops/nf4.hpp"
#include "tigon/storage/safetensors.hpp"

namespace tigon {

struct Residents;

// Where a tensor of a model's files stays in NF4.
struct Nf4Home {
  Nf4Home(const Context& ctx, const std::string& name, int64_t elements);
  ops::Nf4 view() const {
    return {.codes = codes, .scale_codes = scale_codes, .group_scales = group_scales, .offset = offset};
  }

  OwnedTensor codes, scale_codes, group_scales, offset;
};

// Quantized by the host, whatever the home: so the bits are the same on every device.
void store_nf4(const Context& ctx, const Residents& r, const std::vector<float>& values, const Nf4Home& home);

// The same from files that bitsandbytes' part of Transformers has written: under a tensor's name its codes, and behind
// it .absmax, .quant_map, .nested_absmax, .nested_quant_map and .quant_state.bitsandbytes__nf4.
bool is_nf4(const TensorFiles& files, const std::string& name);
// Throws Error unless all of it is there and says what this format says. Adds the names to `known`.
void check_nf4(const TensorFiles& files, const std::string& name, const std::vector<int64_t>& sizes,
               std::set<std::string>& known);
void load_nf4(const Context& ctx, const Residents& r, const TensorFiles& files, const std::string& name,
              const Nf4Home& home);

}  // namespace tigon
