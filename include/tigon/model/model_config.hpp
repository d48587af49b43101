#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/ops/rmsnorm.hpp"
#include "tigon/ops/rope.hpp"

namespace tigon {

enum class Family : int32_t { llama, mistral, qwen2, qwen3, gemma };
enum class Activation : int32_t { silu, gelu_tanh, gelu_erf };

// What a decoder of the Llama family is made of. Read from a Hugging Face config.json; a family is a set of values
// here, and no code asks for its name except to read and write configs.
struct ModelConfig {
  Family family = Family::llama;
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position = 2048;
  int64_t sliding_window = 0;  // 0: every token sees all before it. Training refuses sequences longer than the window.
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  ops::RopeScaling rope_scaling{};
  Activation activation = Activation::silu;
  bool tied_embeddings = false;     // the head's weight is the embedding's
  bool qkv_bias = false;            // Qwen2
  bool qk_norm = false;             // Qwen3: q and k of each head pass an rmsnorm before the rotation
  double norm_offset = 0.0;         // Gemma: norms multiply by 1 + weight
  double embedding_scale = 1.0;     // Gemma: sqrt(hidden)
  double initializer_range = 0.02;  // of random weights
  ops::NormCasting norm_casting = ops::NormCasting::llama;

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  // The most tokens of a sequence that training takes.
  int64_t longest_sequence() const {
    return sliding_window > 0 && sliding_window < max_position ? sliding_window : max_position;
  }
};

// Reads the text of a config.json. An architecture that is not one of the families, a field that changes the
// computation in a way that Tigon does not do, and a size that makes no sense are refused by name. `where` names the
// file in errors.
ModelConfig model_config_from_json(std::string_view text, const std::string& where);
// A config.json that transformers reads back as the same model, with weights in `dtype`.
std::string model_config_to_json(const ModelConfig& config, DType dtype);

// The text of a config.json that says that its weights are in `dtype`, everything else as it was.
std::string config_text_with_dtype(std::string_view text, DType dtype, const std::string& where);

// Throws Error unless the sizes fit each other.
void check_model_config(const ModelConfig& config, const std::string& where);

// Configs by name, so that a plan or a benchmark needs no file: "llama-3.2-1b" and others.
std::vector<std::string> builtin_model_names();
ModelConfig builtin_model(std::string_view name);

std::string_view to_string(Family family) noexcept;

}  // namespace tigon
