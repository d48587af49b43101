#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tigon {

// The matrices of a block, by the names that Hugging Face and PEFT have for them. q, k and v are rows of one weight
// here, gate and up of another.
enum class LoraModule : int32_t { q, k, v, o, gate, up, down };
inline constexpr int kLoraModuleCount = 7;
std::string_view to_string(LoraModule module) noexcept;  // "q_proj"

// Low-rank adapters beside frozen matrices: y = x·Wᵀ + scale·(x·Aᵀ)·Bᵀ with A [rank, in] and B [out, rank]. Everything
// else of the model is frozen as well.
struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters, everything is trained
  double alpha = 16;
  bool rslora = false;                               // scale by alpha/√rank, not by alpha/rank
  std::array<bool, kLoraModuleCount> targets{};      // which have one
  std::array<double, kLoraModuleCount> own_alpha{};  // of a module, where above 0
  std::array<int64_t, kLoraModuleCount> own_rank{};  // the same

  bool any() const { return rank > 0; }
  bool has(LoraModule module) const { return any() && targets[static_cast<size_t>(module)]; }
  int64_t rank_of(LoraModule module) const;
  double scale(LoraModule module) const;
  friend bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

// "r=16,alpha=32,targets=all-linear", "r=8,targets=q_proj+v_proj,rslora,q_proj:r=4,q_proj:alpha=2"; "none".
LoraConfig lora_from_string(std::string_view text);
std::string lora_to_string(const LoraConfig& lora);

// An adapter_config.json of PEFT. What changes the computation in a way that Tigon does not do (DoRA, trained biases,
// other ranks in some layers, …) is refused by name; so is whatever else is not off. `where` names the file.
LoraConfig lora_from_json(std::string_view text, const std::string& where);
// One that PEFT reads back as the same adapters. `base`: the model's folder or name.
std::string lora_to_json(const LoraConfig& lora, const std::string& base);

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

}  // namespace tigon
