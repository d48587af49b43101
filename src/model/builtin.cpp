// Well-known shapes by name: what plans, benchmarks and the demo start from.
#include <cmath>

#include "tigon/core/error.hpp"
#include "tigon/model/model_config.hpp"

namespace tigon {

namespace {

struct Builtin {
  const char* name;
  ModelConfig config;
};

ops::RopeScaling llama3_scaling(double factor) {
  return {.kind = ops::RopeScalingKind::llama3,
          .factor = factor,
          .low_freq_factor = 1.0,
          .high_freq_factor = 4.0,
          .original_max_position = 8192};
}

ModelConfig llama(int64_t vocab, int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads,
                  int64_t kv_heads) {
  return {.vocab = vocab,
          .hidden = hidden,
          .intermediate = intermediate,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = hidden / heads,
          .norm_eps = 1e-5};
}

ModelConfig llama2_7b() {
  ModelConfig config = llama(32000, 4096, 11008, 32, 32, 32);
  config.max_position = 4096;
  return config;
}

ModelConfig tied(ModelConfig config) {
  config.tied_embeddings = true;
  return config;
}

ModelConfig llama3(ModelConfig config, double factor, bool tied) {
  config.max_position = factor > 0 ? 131072 : 8192;
  config.rope_theta = 500000.0;
  if (factor > 0) config.rope_scaling = llama3_scaling(factor);
  config.tied_embeddings = tied;
  return config;
}

ModelConfig mistral_7b() {
  ModelConfig config = llama(32000, 4096, 14336, 32, 32, 8);
  config.family = Family::mistral;
  config.max_position = 32768;
  config.sliding_window = 4096;
  return config;
}

ModelConfig qwen2(int64_t hidden, int64_t intermediate, int64_t layers, int64_t heads, bool tied) {
  ModelConfig config = llama(151936, hidden, intermediate, layers, heads, 2);
  config.family = Family::qwen2;
  config.max_position = 32768;
  config.norm_eps = 1e-6;
  config.rope_theta = 1000000.0;
  config.qkv_bias = true;
  config.tied_embeddings = tied;
  return config;
}

ModelConfig qwen3_06b() {
  ModelConfig config = llama(151936, 1024, 3072, 28, 16, 8);
  config.family = Family::qwen3;
  config.head_dim = 128;
  config.max_position = 40960;
  config.norm_eps = 1e-6;
  config.rope_theta = 1000000.0;
  config.qk_norm = true;
  config.tied_embeddings = true;
  return config;
}

ModelConfig gemma_2b() {
  ModelConfig config = llama(256000, 2048, 16384, 18, 8, 1);
  config.family = Family::gemma;
  config.head_dim = 256;
  config.max_position = 8192;
  config.norm_eps = 1e-6;
  config.activation = Activation::gelu_tanh;
  config.tied_embeddings = true;
  config.norm_offset = 1.0;
  config.norm_casting = ops::NormCasting::gemma;
  config.embedding_scale = std::sqrt(2048.0);
  return config;
}

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> list = {
      // Small ones for CPUs: with a byte vocabulary, and with one of usual size.
      {"llama-bytes-1m", llama(256, 128, 352, 5, 4, 2)},
      {"llama-bytes-6m", llama(256, 256, 704, 8, 8, 4)},
      {"llama-25m", tied(llama(32000, 384, 1024, 7, 6, 6))},
      {"llama-2-7b", llama2_7b()},
      {"llama-3-8b", llama3(llama(128256, 4096, 14336, 32, 32, 8), 0, false)},
      {"llama-3.1-8b", llama3(llama(128256, 4096, 14336, 32, 32, 8), 8, false)},
      {"llama-3.2-1b", llama3(llama(128256, 2048, 8192, 16, 32, 8), 32, true)},
      {"llama-3.2-3b", llama3(llama(128256, 3072, 8192, 28, 24, 8), 32, true)},
      {"mistral-7b", mistral_7b()},
      {"qwen2.5-0.5b", qwen2(896, 4864, 24, 14, true)},
      {"qwen2.5-1.5b", qwen2(1536, 8960, 28, 12, true)},
      {"qwen3-0.6b", qwen3_06b()},
      {"gemma-2b", gemma_2b()},
  };
  return list;
}

}  // namespace

namespace {

// "meta-llama/Llama-3.2-1B", as models are called on the Hugging Face Hub.
std::string hub_advice(std::string_view name) {
  const size_t slash = name.find('/');
  const bool inside = slash != std::string_view::npos && slash > 0 && slash + 1 < name.size();
  if (!inside || name.find('/', slash + 1) != std::string_view::npos || name[0] == '.' || name[0] == '~') return {};
  const std::string folder(name.substr(slash + 1));
  return "If this is a name on the Hugging Face Hub, fetch it first: hf download " + std::string(name) +
         " --local-dir " + folder + ", then give --model ./" + folder + ".";
}

}  // namespace

std::vector<std::string> builtin_model_names() {
  std::vector<std::string> names;
  for (const Builtin& builtin : builtins()) names.emplace_back(builtin.name);
  return names;
}

ModelConfig builtin_model(std::string_view name) {
  std::string known;
  for (const Builtin& builtin : builtins()) {
    if (builtin.name == name) return builtin.config;
    known += (known.empty() ? "" : ", ") + std::string(builtin.name);
  }
  throw Error(ErrorCode::invalid_argument, {.where = "model",
                                            .what = "there is no built-in model and no folder of this name",
                                            .expected = "a folder with a config.json, or one of " + known,
                                            .got = "'" + std::string(name) + "'",
                                            .fix = hub_advice(name)});
}

}  // namespace tigon
