#include "tigon/model/model_config.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "ops/expect_error.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/model/parameters.hpp"

namespace tigon::test {
namespace {

// Llama-3.2-1B's own file.
constexpr const char* kLlama32 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256 })";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& why) {
  try {
    (void)model_config_from_json(text, "config.json");
    ADD_FAILURE() << "accepted, though it should say: " << why;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(ModelConfig, ReadsAFileAndItIsTheBuiltInOne) {
  const ModelConfig read = model_config_from_json(kLlama32, "config.json"), ours = builtin_model("llama-3.2-1b");
  EXPECT_EQ(model_config_to_json(read, DType::bf16), model_config_to_json(ours, DType::bf16));
  EXPECT_EQ(read.rope_scaling.kind, ops::RopeScalingKind::llama3);
  EXPECT_EQ(read.rope_scaling.factor, 32.0);
  EXPECT_TRUE(read.tied_embeddings);
}

TEST(ModelConfig, EveryBuiltInOneSurvivesItsFile) {
  for (const std::string& name : builtin_model_names()) {
    const std::string text = model_config_to_json(builtin_model(name), DType::f32);
    const ModelConfig read = model_config_from_json(text, name);
    EXPECT_EQ(model_config_to_json(read, DType::f32), text);
    EXPECT_EQ(read.qkv_bias, builtin_model(name).qkv_bias);
    EXPECT_EQ(read.qk_norm, builtin_model(name).qk_norm);
    EXPECT_EQ(read.norm_offset, builtin_model(name).norm_offset);
    EXPECT_EQ(read.embedding_scale, builtin_model(name).embedding_scale);
  }
  EXPECT_THROW((void)builtin_model("llama-4"), Error);
}

TEST(ModelConfig, UnknownAndUnsupportedIsRefusedByName) {
  expect_refused(replaced(kLlama32, "\"llama\"", "\"mamba\""), "'mamba'");
  expect_refused(replaced(kLlama32, "LlamaForCausalLM", "LlamaForSequenceClassification"),
                 "LlamaForSequenceClassification");
  expect_refused(replaced(kLlama32, "\"mlp_bias\": false", "\"mlp_bias\": true"), "mlp_bias");
  expect_refused(replaced(kLlama32, "\"attention_bias\": false", "\"attention_bias\": true"), "attention_bias");
  expect_refused(replaced(kLlama32, "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1"), "attention_dropout");
  expect_refused(replaced(kLlama32, "\"silu\"", "\"relu2\""), "'relu2'");
  expect_refused(replaced(kLlama32, "\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\""), "longrope");
  // Its files have lists of factors, and no one that is missing.
  expect_refused(replaced(replaced(kLlama32, "\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\""),
                          "\"factor\": 32.0,", "\"long_factor\": [1.0, 2.0],"),
                 "rope scaling 'longrope' is not supported");
  expect_refused(replaced(kLlama32, "\"factor\": 32.0,", "\"factor\": 32.0, \"mystery\": 32.0,"), "mystery");
  expect_refused(replaced(kLlama32, "\"factor\": 32.0,", ""), "'factor'");
  expect_refused(replaced(kLlama32, "\"use_cache\": true", "\"num_experts\": 8"), "num_experts");
  expect_refused(replaced(kLlama32, "\"use_cache\": true", "\"quantization_config\": {}"), "quantization_config");
  expect_refused(replaced(kLlama32, "\"use_cache\": true", "\"partial_rotary_factor\": 0.5"), "partial_rotary_factor");
  expect_refused(replaced(kLlama32, "\"hidden_size\": 2048,", ""), "'hidden_size' is missing");
  expect_refused(replaced(kLlama32, "\"hidden_size\": 2048", "\"hidden_size\": \"2048\""), "whole number");
  expect_refused(replaced(kLlama32, "\"hidden_size\": 2048", "\"hidden_size\": -1"), "hidden_size");
  expect_refused(replaced(kLlama32, "\"hidden_size\": 2048", "\"hidden_size\": 9223372036854775807"), "hidden_size");
  expect_refused(replaced(kLlama32, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7"), "multiple");
  expect_refused(replaced(kLlama32, "\"num_attention_heads\": 32", "\"num_attention_heads\": 0"),
                 "num_attention_heads");
  expect_refused(replaced(kLlama32, "\"head_dim\": 64", "\"head_dim\": 63"), "head_dim");
  expect_refused(replaced(kLlama32, "\"vocab_size\": 128256", "\"vocab_size\": 1e5"), "vocab_size");
  expect_refused("", "JSON");
  expect_refused("[]", "object");
}

TEST(ModelConfig, FlippedAndCutFilesNeverCrash) {
  const RandomStream random{.seed = 2};
  int refused = 0;
  for (uint64_t i = 0; i < 5000; ++i) {
    std::string bad = kLlama32;
    const size_t at = random.bits(3 * i) % bad.size();
    if (i % 4 == 0) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(bad[at] ^ (1 << random.bits(3 * i + 1) % 8));
    }
    try {
      const ModelConfig config = model_config_from_json(bad, "config.json");
      if (config.layers < 100) {
        EXPECT_GT(ParameterList(config).elements(), 0);
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
}

TEST(ModelConfig, GemmasActivationInOldAndNewFiles) {
  const auto gemma = [](const std::string& extra) {
    return model_config_from_json(R"({"model_type":"gemma","vocab_size":8,"hidden_size":16,"intermediate_size":8,
      "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":8)" +
                                      extra + "}",
                                  "config.json");
  };
  EXPECT_EQ(gemma("").activation, Activation::gelu_tanh);
  EXPECT_EQ(gemma(R"(,"hidden_activation":null)").activation, Activation::gelu_tanh);
  EXPECT_EQ(gemma(R"(,"hidden_act":"gelu","hidden_activation":null)").activation, Activation::gelu_erf);
  EXPECT_EQ(gemma(R"(,"hidden_act":"gelu","hidden_activation":"gelu_pytorch_tanh")").activation, Activation::gelu_erf);
  EXPECT_EQ(gemma(R"(,"hidden_activation":"gelu")").activation, Activation::gelu_tanh);
  EXPECT_EQ(gemma(R"(,"hidden_act":"gelu")").activation, Activation::gelu_erf);
  EXPECT_TRUE(gemma("").tied_embeddings);
  EXPECT_EQ(gemma("").embedding_scale, 4.0);
}

// As they stand on the model hub.
TEST(ModelConfig, ReadsTheFilesOfOtherFamilies) {
  const struct {
    const char* name;
    const char* text;
  } files[] = {
      {"llama-2-7b", R"({"architectures":["LlamaForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
        "hidden_size":4096,"initializer_range":0.02,"intermediate_size":11008,"max_position_embeddings":4096,
        "model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"pretraining_tp":1,
        "rms_norm_eps":1e-05,"rope_scaling":null,"tie_word_embeddings":false,"torch_dtype":"float16",
        "transformers_version":"4.31.0.dev0","use_cache":true,"vocab_size":32000})"},
      {"mistral-7b", R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
        "hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,
        "model_type":"mistral","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,
        "rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":4096,"tie_word_embeddings":false,
        "torch_dtype":"bfloat16","transformers_version":"4.34.0.dev0","use_cache":true,"vocab_size":32000})"},
      {"qwen2.5-0.5b", R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,
        "eos_token_id":151643,"hidden_act":"silu","hidden_size":896,"initializer_range":0.02,"intermediate_size":4864,
        "max_position_embeddings":32768,"max_window_layers":24,"model_type":"qwen2","num_attention_heads":14,
        "num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
        "sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.40.1",
        "use_cache":true,"use_mrope":false,"use_sliding_window":false,"vocab_size":151936})"},
      {"qwen3-0.6b", R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "bos_token_id":151643,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu","hidden_size":1024,
        "initializer_range":0.02,"intermediate_size":3072,"max_position_embeddings":40960,"max_window_layers":28,
        "model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":8,
        "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,"tie_word_embeddings":true,
        "torch_dtype":"bfloat16","transformers_version":"4.51.0","use_cache":true,"use_sliding_window":false,
        "vocab_size":151936})"},
      {"gemma-2b", R"({"architectures":["GemmaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
        "bos_token_id":2,"eos_token_id":1,"head_dim":256,"hidden_act":"gelu","hidden_activation":"gelu_pytorch_tanh",
        "hidden_size":2048,"initializer_range":0.02,"intermediate_size":16384,"max_position_embeddings":8192,
        "model_type":"gemma","num_attention_heads":8,"num_hidden_layers":18,"num_key_value_heads":1,"pad_token_id":0,
        "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":10000.0,"torch_dtype":"bfloat16",
        "transformers_version":"4.38.0.dev0","use_cache":true,"vocab_size":256000})"},
  };
  for (const auto& file : files) {
    ModelConfig read = model_config_from_json(file.text, file.name), ours = builtin_model(file.name);
    // Gemma's file says gelu; only transformers 4 read the field beside it that says what the weights were made with.
    if (ours.family == Family::gemma) ours.activation = Activation::gelu_erf;
    EXPECT_EQ(model_config_to_json(read, DType::bf16), model_config_to_json(ours, DType::bf16));
    EXPECT_EQ(read.qkv_bias, ours.qkv_bias);
    EXPECT_EQ(read.qk_norm, ours.qk_norm);
  }
}

// As transformers completes a file: a family has numbers of its own, and null is not the same as nothing.
TEST(ModelConfig, FieldsThatAreNotThereAreTheFamilys) {
  const auto read = [](const std::string& type, const std::string& extra) {
    return model_config_from_json(R"({"model_type":")" + type + R"(","vocab_size":8,"hidden_size":64,
      "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":32)" +
                                      extra + "}",
                                  "config.json");
  };
  const struct {
    const char* type;
    int64_t kv_heads, head_dim, max_position, window;
  } families[] = {{"llama", 32, 2, 2048, 0},
                  {"mistral", 8, 2, 131072, 4096},
                  {"qwen2", 32, 2, 32768, 0},
                  {"qwen3", 32, 128, 32768, 0},
                  {"gemma", 16, 256, 8192, 0}};
  for (const auto& family : families) {
    const ModelConfig config = read(family.type, "");
    EXPECT_EQ(config.kv_heads, family.kv_heads) << family.type;
    EXPECT_EQ(config.head_dim, family.head_dim) << family.type;
    EXPECT_EQ(config.max_position, family.max_position) << family.type;
    EXPECT_EQ(config.sliding_window, family.window) << family.type;
    EXPECT_EQ(read(family.type, R"(,"num_key_value_heads":null)").kv_heads, 32) << family.type;
    EXPECT_EQ(read(family.type, R"(,"sliding_window":null)").sliding_window, 0) << family.type;
  }
  EXPECT_EQ(read("qwen2", R"(,"use_sliding_window":true)").sliding_window, 4096);
}

TEST(ModelConfig, FieldsThatSayTheUsualAreTaken) {
  // SmolLM2's, and what newer files may have.
  const std::string smol = replaced(kLlama32, "\"use_cache\": true", R"("is_llama_config": true,
    "rope_interleaved": false, "transformers.js_config": {"dtype": "q4"}, "use_cache": true)");
  EXPECT_EQ(model_config_from_json(smol, "config.json").vocab, 128256);
  expect_refused(replaced(smol, "\"rope_interleaved\": false", "\"rope_interleaved\": true"), "rope_interleaved");
  const std::string inside =
      replaced(kLlama32, "\"rope_type\": \"llama3\"", "\"partial_rotary_factor\": 1.0, \"rope_type\": \"llama3\"");
  EXPECT_EQ(model_config_from_json(inside, "config.json").rope_scaling.factor, 32.0);
  expect_refused(replaced(inside, "\"partial_rotary_factor\": 1.0", "\"partial_rotary_factor\": 0.5"),
                 "partial_rotary_factor");
}

TEST(ModelConfig, FieldsOfGenerationAreTaken) {
  const std::string text = replaced(kLlama32, "\"use_cache\": true", R"("max_length": 4096, "temperature": 0.6,
    "do_sample": true, "top_p": 0.9, "top_k": 50, "num_beams": 1, "repetition_penalty": 1.0, "use_cache": true)");
  EXPECT_EQ(model_config_from_json(text, "config.json").vocab, 128256);
}

TEST(ModelConfig, RopeScalingComesBeforeRopeParameters) {
  const auto read = [](const std::string& extra) {
    return model_config_from_json(R"({"model_type":"llama","vocab_size":8,"hidden_size":16,"intermediate_size":8,
      "num_hidden_layers":1,"num_attention_heads":2,"rope_parameters":{"rope_type":"linear","factor":2.0,
      "rope_theta":500000.0})" + extra +
                                      "}",
                                  "config.json");
  };
  EXPECT_EQ(read("").rope_scaling.factor, 2.0);
  EXPECT_EQ(read("").rope_theta, 500000.0);
  for (const char* nothing : {R"(,"rope_scaling":null)", R"(,"rope_scaling":{})"}) {
    EXPECT_EQ(read(nothing).rope_scaling.factor, 2.0) << nothing;
    EXPECT_EQ(read(nothing).rope_theta, 500000.0) << nothing;
  }
  const ModelConfig both = read(R"(,"rope_scaling":{"type":"linear","factor":4.0})");
  EXPECT_EQ(both.rope_scaling.factor, 4.0);
  EXPECT_EQ(both.rope_theta, 10000.0) << "nothing of rope_parameters";
  EXPECT_EQ(read(R"(,"rope_scaling":{"type":"linear","factor":4.0},"rope_theta":20000.0)").rope_theta, 20000.0);
}

TEST(ModelConfig, MistralsWindowIsKept) {
  const ModelConfig config = builtin_model("mistral-7b");
  EXPECT_EQ(config.sliding_window, 4096);
  EXPECT_EQ(model_config_from_json(model_config_to_json(config, DType::bf16), "").sliding_window, 4096);
}

TEST(Parameters, AModelMadeByHandIsChecked) {
  const auto refuse = [](auto change, const char* text) {
    ModelConfig model = builtin_model("llama-bytes-1m");
    change(model);
    expect_error([&] { ParameterList{model}; }, ErrorCode::invalid_argument, text);
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  refuse([](auto& m) { m = {}; }, "'vocab_size' is out of range");
  refuse([](auto& m) { m.layers = 0; }, "'num_hidden_layers' is out of range");
  refuse([](auto& m) { m.layers = int64_t{1} << 60; }, "'num_hidden_layers' is out of range");
  refuse([](auto& m) { m.kv_heads = 0; }, "'num_key_value_heads' is out of range");
  refuse([](auto& m) { m.family = static_cast<Family>(9); }, "'family'");
  refuse([](auto& m) { m.activation = static_cast<Activation>(9); }, "'activation'");
  refuse([](auto& m) { m.norm_casting = static_cast<ops::NormCasting>(-1); }, "'norm_casting'");
  refuse([](auto& m) { m.initializer_range = kNan; }, "'initializer_range'");
  refuse([](auto& m) { m.norm_offset = kNan; }, "'norm_offset'");
  refuse([](auto& m) { m.embedding_scale = kNan; }, "'embedding_scale'");
}

TEST(Parameters, CountsOfKnownModels) {
  EXPECT_EQ(ParameterList(builtin_model("llama-3.2-1b")).elements(), 1'235'814'400);
  EXPECT_EQ(ParameterList(builtin_model("llama-2-7b")).elements(), 6'738'415'616);
  EXPECT_EQ(ParameterList(builtin_model("llama-3.1-8b")).elements(), 8'030'261'248);
  EXPECT_EQ(ParameterList(builtin_model("mistral-7b")).elements(), 7'241'732'096);
  EXPECT_EQ(ParameterList(builtin_model("qwen2.5-0.5b")).elements(), 494'032'768);
  EXPECT_EQ(ParameterList(builtin_model("qwen3-0.6b")).elements(), 596'049'920);
  EXPECT_EQ(ParameterList(builtin_model("gemma-2b")).elements(), 2'506'172'416);
}

}  // namespace
}  // namespace tigon::test
