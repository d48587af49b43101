// config.json, both ways. Every field is either used, known not to matter for training, or refused.
#include "tigon/model/model_config.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "json/json.hpp"
#include "tigon/core/error.hpp"

namespace tigon {

namespace {

struct FamilyNames {
  Family family;
  const char* model_type;
  const char* architecture;
  // What transformers takes where the file does not have the field; 0: it follows from the others, or there is none.
  int64_t kv_heads, head_dim, max_position, window;
};
constexpr FamilyNames kFamilies[] = {{Family::llama, "llama", "LlamaForCausalLM", 0, 0, 2048, 0},
                                     {Family::mistral, "mistral", "MistralForCausalLM", 8, 0, 131072, 4096},
                                     {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 32, 0, 32768, 4096},
                                     {Family::qwen3, "qwen3", "Qwen3ForCausalLM", 32, 128, 32768, 4096},
                                     {Family::gemma, "gemma", "GemmaForCausalLM", 16, 256, 8192, 0}};

const FamilyNames& names_of(Family family) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const auto& f) { return f.family == family; });
}

// Fields that say how text is made, how files were written or how generation runs: nothing that a training step sees.
const std::set<std::string, std::less<>> kHarmless = {"_name_or_path",
                                                      "_attn_implementation_autoset",
                                                      "architectures",
                                                      "auto_map",
                                                      "bos_token_id",
                                                      "eos_token_id",
                                                      "pad_token_id",
                                                      "unk_token_id",
                                                      "sep_token_id",
                                                      "cls_token_id",
                                                      "decoder_start_token_id",
                                                      "chunk_size_feed_forward",
                                                      "dtype",
                                                      "torch_dtype",
                                                      "id2label",
                                                      "label2id",
                                                      "is_encoder_decoder",
                                                      "is_decoder",
                                                      "output_attentions",
                                                      "output_hidden_states",
                                                      "pretraining_tp",
                                                      "problem_type",
                                                      "return_dict",
                                                      "transformers_version",
                                                      "use_cache",
                                                      "_commit_hash",
                                                      "tokenizer_class",
                                                      "attn_implementation",
                                                      "_attn_implementation",
                                                      "max_window_layers",
                                                      "model_type",
                                                      "num_labels",
                                                      "finetuning_task",
                                                      "task_specific_params",
                                                      "prefix",
                                                      "generation_config",
                                                      "unsloth_version",
                                                      "unsloth_fixed",
                                                      "is_llama_config",
                                                      "transformers.js_config",
                                                      "torchscript",
                                                      "tf_legacy_loss",
                                                      "use_bfloat16"};

// Old versions of transformers wrote what belongs into generation_config.json here.
const std::set<std::string, std::less<>> kGeneration = {"bad_words_ids",
                                                        "begin_suppress_tokens",
                                                        "cache_implementation",
                                                        "diversity_penalty",
                                                        "do_sample",
                                                        "early_stopping",
                                                        "encoder_no_repeat_ngram_size",
                                                        "epsilon_cutoff",
                                                        "eta_cutoff",
                                                        "exponential_decay_length_penalty",
                                                        "forced_bos_token_id",
                                                        "forced_eos_token_id",
                                                        "length_penalty",
                                                        "max_length",
                                                        "max_new_tokens",
                                                        "min_length",
                                                        "min_new_tokens",
                                                        "min_p",
                                                        "no_repeat_ngram_size",
                                                        "num_beam_groups",
                                                        "num_beams",
                                                        "num_return_sequences",
                                                        "output_scores",
                                                        "remove_invalid_values",
                                                        "renormalize_logits",
                                                        "repetition_penalty",
                                                        "return_dict_in_generate",
                                                        "suppress_tokens",
                                                        "temperature",
                                                        "top_k",
                                                        "top_p",
                                                        "typical_p"};

// Reads fields and remembers which were read.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) { (void)json.object(where_); }

  std::string at(std::string_view key) const { return where_ + ": '" + std::string(key) + "'"; }
  // A member that is there and not null.
  const Json* get(std::string_view key) {
    used_.insert(std::string(key));
    const Json* value = json_.find(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }
  bool has_key(std::string_view key) const { return json_.find(key) != nullptr; }
  int64_t integer(std::string_view key, int64_t otherwise) {
    const Json* value = get(key);
    return value ? value->integer(at(key)) : otherwise;
  }
  // Where a field that is null says something else than one that is not there.
  int64_t integer(std::string_view key, int64_t null, int64_t absent) {
    return integer(key, has_key(key) || absent == 0 ? null : absent);
  }
  int64_t required(std::string_view key) {
    if (const Json* value = get(key)) return value->integer(at(key));
    throw Error(ErrorCode::invalid_argument, {.where = where_, .what = "'" + std::string(key) + "' is missing"});
  }
  double number(std::string_view key, double otherwise) {
    const Json* value = get(key);
    return value ? value->number(at(key)) : otherwise;
  }
  bool boolean(std::string_view key, bool otherwise) {
    const Json* value = get(key);
    return value ? value->boolean(at(key)) : otherwise;
  }
  std::string string(std::string_view key, const std::string& otherwise) {
    const Json* value = get(key);
    return value ? value->string(at(key)) : otherwise;
  }
  [[noreturn]] void unsupported(std::string_view key, std::string what, std::string fix = {}) const {
    throw Error(ErrorCode::unsupported, {.where = at(key), .what = std::move(what), .fix = std::move(fix)});
  }
  void refuse_the_rest() const {
    for (const auto& [key, value] : json_.object(where_)) {
      if (used_.contains(key) || kHarmless.contains(key) || kGeneration.contains(key) || value.is_null()) continue;
      unsupported(key, "this field is not known, and it may change what the model computes",
                  "Remove it from config.json if it does not.");
    }
  }

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string, std::less<>> used_;
};

Family family_of(Fields& fields, const Json& json) {
  std::string known;
  for (const FamilyNames& f : kFamilies) known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  const std::string type = fields.string("model_type", "");
  const FamilyNames* found = nullptr;
  for (const FamilyNames& f : kFamilies) {
    if (type == f.model_type) found = &f;
  }
  if (found == nullptr) {
    throw Error(ErrorCode::unsupported, {.where = fields.at("model_type"),
                                         .what = "this architecture is not supported",
                                         .expected = known,
                                         .got = "'" + type + "'"});
  }
  if (const Json* list = json.find("architectures"); list != nullptr && !list->is_null()) {
    for (const Json& entry : list->array(fields.at("architectures"))) {
      const std::string& name = entry.string(fields.at("architectures"));
      if (name != found->architecture) {
        throw Error(ErrorCode::unsupported, {.where = fields.at("architectures"),
                                             .what = "this architecture is not supported",
                                             .expected = found->architecture,
                                             .got = "'" + name + "'"});
      }
    }
  }
  return found->family;
}

void refuse_partial_rotation(Fields& fields) {
  if (fields.number("partial_rotary_factor", 1.0) == 1.0) return;
  fields.unsupported("partial_rotary_factor", "a rotation of a part of each head is not supported");
}

ops::RopeScaling rope_scaling(const Json& json, const ModelConfig& config, const std::string& where, double& theta) {
  Fields fields(json, where);
  // Old files call it "type".
  const std::string type = fields.string("rope_type", fields.string("type", "default"));
  theta = fields.number("rope_theta", theta);
  refuse_partial_rotation(fields);
  ops::RopeScaling scaling;
  if (type == "default") {
    fields.refuse_the_rest();
    return scaling;
  }
  if (type != "linear" && type != "llama3" && type != "yarn") {
    fields.unsupported("rope_type", "rope scaling '" + type + "' is not supported",
                       "default, linear, llama3, yarn are.");
  }
  if (fields.get("factor") == nullptr)
    fields.unsupported("factor", "the factor of rope scaling '" + type + "' is missing");
  scaling.factor = fields.number("factor", 1.0);
  scaling.original_max_position =
      fields.number("original_max_position_embeddings", static_cast<double>(config.max_position));
  if (type == "linear") {
    scaling.kind = ops::RopeScalingKind::linear;
  } else if (type == "llama3") {
    scaling.kind = ops::RopeScalingKind::llama3;
    scaling.low_freq_factor = fields.number("low_freq_factor", 1.0);
    scaling.high_freq_factor = fields.number("high_freq_factor", 4.0);
  } else {
    scaling.kind = ops::RopeScalingKind::yarn;
    scaling.beta_fast = fields.number("beta_fast", 32.0);
    scaling.beta_slow = fields.number("beta_slow", 1.0);
    scaling.attention_factor = fields.number("attention_factor", 0.0);
  }
  fields.refuse_the_rest();
  return scaling;
}

void read_rope(Fields& fields, ModelConfig& config, const std::string& where) {
  config.rope_theta = fields.number("rope_theta", 10000.0);
  refuse_partial_rotation(fields);
  if (fields.boolean("rope_interleaved", false)) {
    fields.unsupported("rope_interleaved", "a rotation of neighbouring pairs is not supported");
  }
  // transformers 5 writes rope_parameters, earlier ones rope_theta and rope_scaling. Where both are there, it takes
  // rope_scaling, and nothing at all of rope_parameters.
  const Json *scaling = fields.get("rope_scaling"), *parameters = fields.get("rope_parameters");
  const bool old = scaling != nullptr && !scaling->object(fields.at("rope_scaling")).empty();
  const char* key = old ? "rope_scaling" : "rope_parameters";
  const Json* value = old ? scaling : parameters;
  if (value == nullptr) return;
  for (const auto& [name, member] : value->object(fields.at(key))) {
    if (member.is_object()) fields.unsupported(key, "rope parameters by layer type are not supported");
  }
  config.rope_scaling = rope_scaling(*value, config, where + ": '" + key + "'", config.rope_theta);
}

void read_window(Fields& fields, ModelConfig& config) {
  const bool used = config.family == Family::mistral || fields.boolean("use_sliding_window", false);
  const int64_t window = fields.integer("sliding_window", 0, names_of(config.family).window);
  if (used) config.sliding_window = window;
  if (const Json* types = fields.get("layer_types")) {
    for (const Json& type : types->array(fields.at("layer_types"))) {
      const std::string& name = type.string(fields.at("layer_types"));
      if (name == "sliding_attention" && window > 0) {
        config.sliding_window = window;
      } else if (name != "full_attention") {
        fields.unsupported("layer_types", "layers of type '" + name + "' are not supported");
      }
    }
  }
}

Activation activation_of(const Fields& fields, const char* key, const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu_erf;
  fields.unsupported(key, "the activation '" + name + "' is not supported", "silu, gelu and gelu_pytorch_tanh are.");
}

void read_gemma(Fields& fields, ModelConfig& config) {
  config.norm_offset = 1.0;
  config.norm_casting = ops::NormCasting::gemma;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  // Transformers 4 took the activation from here, 5 takes hidden_act alone.
  (void)fields.get("hidden_activation");
  if (fields.boolean("use_bidirectional_attention", false)) {
    fields.unsupported("use_bidirectional_attention", "attention to later tokens is not supported");
  }
}

}  // namespace

std::string_view to_string(Family family) noexcept { return names_of(family).model_type; }

// What bitsandbytes' part of Transformers says of the weights that --base nf4 reads. The weights say it again, each.
static bool is_double_nf4(const Json& json, const std::string& where) {
  const auto is = [&](const char* key, const char* expected) {
    const Json* value = json.find(key);
    return value != nullptr && value->is_string() && value->string(where) == expected;
  };
  const auto on = [&](const char* key) {
    const Json* value = json.find(key);
    return value != nullptr && value->is_bool() && value->boolean(where);
  };
  return is("quant_method", "bitsandbytes") && on("load_in_4bit") && is("bnb_4bit_quant_type", "nf4") &&
         on("bnb_4bit_use_double_quant");
}

ModelConfig model_config_from_json(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where);
  Fields fields(json, where);
  ModelConfig config;
  config.family = family_of(fields, json);
  const bool gemma = config.family == Family::gemma, qwen2 = config.family == Family::qwen2;
  config.vocab = fields.required("vocab_size");
  config.hidden = fields.required("hidden_size");
  config.intermediate = fields.required("intermediate_size");
  config.layers = fields.required("num_hidden_layers");
  config.heads = fields.required("num_attention_heads");
  const FamilyNames& names = names_of(config.family);
  config.kv_heads = fields.integer("num_key_value_heads", config.heads, names.kv_heads);
  config.head_dim = fields.integer("head_dim", config.heads > 0 ? config.hidden / config.heads : 0, names.head_dim);
  config.max_position = fields.integer("max_position_embeddings", names.max_position);
  config.norm_eps = fields.number("rms_norm_eps", 1e-6);
  config.initializer_range = fields.number("initializer_range", 0.02);
  config.tied_embeddings = fields.boolean("tie_word_embeddings", gemma);
  config.activation =
      activation_of(fields, "hidden_act", fields.string("hidden_act", gemma ? "gelu_pytorch_tanh" : "silu"));
  config.qkv_bias = qwen2;
  config.qk_norm = config.family == Family::qwen3;
  read_rope(fields, config, where);
  read_window(fields, config);
  if (gemma) read_gemma(fields, config);
  // transformers' attention_bias puts a bias on o_proj as well.
  if (fields.boolean("attention_bias", qwen2) != qwen2) {
    fields.unsupported("attention_bias", "biases of the attention's projections are supported in Qwen2 alone");
  }
  if (fields.boolean("mlp_bias", false)) fields.unsupported("mlp_bias", "a bias in the MLP is not supported");
  for (const char* dropout : {"attention_dropout", "hidden_dropout", "dropout"}) {
    if (fields.number(dropout, 0.0) != 0.0) fields.unsupported(dropout, "dropout is not supported");
  }
  if (const Json* quantized = fields.get("quantization_config"); quantized && !is_double_nf4(*quantized, where)) {
    fields.unsupported("quantization_config",
                       "quantized weights are read in bitsandbytes' NF4 alone, with double "
                       "quantization, beside adapters (--lora with --base nf4)",
                       "Use the model's 16-bit weights.");
  }
  if (fields.boolean("use_mrope", false))
    fields.unsupported("use_mrope", "positions in several dimensions are not supported");
  fields.refuse_the_rest();
  check_model_config(config, where);
  return config;
}

void check_model_config(const ModelConfig& config, const std::string& where) {
  const auto fail = [&](const std::string& what, const std::string& got) {
    throw Error(ErrorCode::invalid_argument, {.where = where, .what = what, .got = got});
  };
  struct Size {
    const char* name;
    int64_t value, most;
  };
  // Far above every model there is, and small enough that products of three stay in 63 bits.
  for (const Size& size : {Size{"vocab_size", config.vocab, int64_t{1} << 24},
                           {"hidden_size", config.hidden, int64_t{1} << 20},
                           {"intermediate_size", config.intermediate, int64_t{1} << 22},
                           {"num_hidden_layers", config.layers, 4096},
                           {"num_attention_heads", config.heads, 4096},
                           {"num_key_value_heads", config.kv_heads, 4096},
                           {"head_dim", config.head_dim, 4096},
                           {"max_position_embeddings", config.max_position, int64_t{1} << 31}}) {
    if (size.value < 1 || size.value > size.most) {
      throw Error(ErrorCode::invalid_argument, {.where = where,
                                                .what = std::string("'") + size.name + "' is out of range",
                                                .expected = "1 to " + std::to_string(size.most),
                                                .got = std::to_string(size.value)});
    }
  }
  struct Choice {
    const char* name;
    int32_t value, last;
  };
  for (const Choice& choice :
       {Choice{"family", static_cast<int32_t>(config.family), static_cast<int32_t>(Family::gemma)},
        {"activation", static_cast<int32_t>(config.activation), static_cast<int32_t>(Activation::gelu_erf)},
        {"norm_casting", static_cast<int32_t>(config.norm_casting), static_cast<int32_t>(ops::NormCasting::none)}}) {
    if (choice.value < 0 || choice.value > choice.last)
      fail(std::string("'") + choice.name + "' is none of the known ones", std::to_string(choice.value));
  }
  if (config.heads % config.kv_heads != 0) {
    fail("'num_attention_heads' is not a multiple of 'num_key_value_heads'",
         std::to_string(config.heads) + " and " + std::to_string(config.kv_heads));
  }
  if (config.head_dim % 2 != 0) fail("'head_dim' cannot be halved for the rotation", std::to_string(config.head_dim));
  if (config.sliding_window < 0) fail("'sliding_window' is negative", std::to_string(config.sliding_window));
  if (!(config.norm_eps >= 0 && config.norm_eps <= 1))
    fail("'rms_norm_eps' is out of range", std::to_string(config.norm_eps));
  if (!(config.rope_theta > 0 && config.rope_theta < 1e30))
    fail("'rope_theta' is out of range", std::to_string(config.rope_theta));
  if (!(config.initializer_range >= 0 && config.initializer_range < 100)) {
    fail("'initializer_range' is out of range", std::to_string(config.initializer_range));
  }
  if (!std::isfinite(config.norm_offset)) fail("'norm_offset' is not finite", std::to_string(config.norm_offset));
  if (!std::isfinite(config.embedding_scale))
    fail("'embedding_scale' is not finite", std::to_string(config.embedding_scale));
}

namespace {

Json rope_json(const ModelConfig& config) {
  const ops::RopeScaling& s = config.rope_scaling;
  Json rope;
  rope.set("rope_theta", config.rope_theta);
  const auto common = [&](const char* type) {
    rope.set("rope_type", type);
    rope.set("factor", s.factor);
    rope.set("original_max_position_embeddings", static_cast<int64_t>(s.original_max_position));
  };
  switch (s.kind) {
    case ops::RopeScalingKind::none: rope.set("rope_type", "default"); break;
    case ops::RopeScalingKind::linear:
      rope.set("rope_type", "linear");
      rope.set("factor", s.factor);
      break;
    case ops::RopeScalingKind::llama3:
      common("llama3");
      rope.set("low_freq_factor", s.low_freq_factor);
      rope.set("high_freq_factor", s.high_freq_factor);
      break;
    case ops::RopeScalingKind::yarn:
      common("yarn");
      rope.set("beta_fast", s.beta_fast);
      rope.set("beta_slow", s.beta_slow);
      if (s.attention_factor != 0) rope.set("attention_factor", s.attention_factor);
      break;
  }
  return rope;
}

const char* dtype_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

}  // namespace

std::string config_text_with_dtype(std::string_view text, DType dtype, const std::string& where) {
  Json json = Json::parse(text, where);
  (void)json.object(where);
  if (json.find("torch_dtype")) json.set("torch_dtype", dtype_name(dtype));
  if (json.find("dtype") || !json.find("torch_dtype")) json.set("dtype", dtype_name(dtype));
  return json.dump() + "\n";
}

std::string model_config_to_json(const ModelConfig& config, DType dtype) {
  static const std::map<Activation, const char*> kActivations = {
      {Activation::silu, "silu"}, {Activation::gelu_tanh, "gelu_pytorch_tanh"}, {Activation::gelu_erf, "gelu"}};
  const FamilyNames& names = names_of(config.family);
  const char* type = dtype_name(dtype);
  const Json rope = rope_json(config);
  Json json;
  json.set("architectures", Json::Array{names.architecture});
  json.set("model_type", names.model_type);
  json.set("vocab_size", config.vocab);
  json.set("hidden_size", config.hidden);
  json.set("intermediate_size", config.intermediate);
  json.set("num_hidden_layers", config.layers);
  json.set("num_attention_heads", config.heads);
  json.set("num_key_value_heads", config.kv_heads);
  json.set("head_dim", config.head_dim);
  json.set("max_position_embeddings", config.max_position);
  json.set("rms_norm_eps", config.norm_eps);
  json.set("hidden_act", kActivations.at(config.activation));
  if (config.family == Family::gemma) json.set("hidden_activation", kActivations.at(config.activation));
  json.set("initializer_range", config.initializer_range);
  json.set("tie_word_embeddings", config.tied_embeddings);
  // Both spellings, for transformers before and from 5 on.
  json.set("rope_theta", config.rope_theta);
  json.set("rope_parameters", rope);
  if (config.rope_scaling.kind != ops::RopeScalingKind::none) json.set("rope_scaling", rope);
  if (config.family == Family::mistral)
    json.set("sliding_window", config.sliding_window ? Json(config.sliding_window) : Json());
  json.set("torch_dtype", type);
  json.set("dtype", type);
  return json.dump() + "\n";
}

}  // namespace tigon
