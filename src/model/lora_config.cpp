// adapter_config.json, both ways. Every field is either used, known not to matter for training, or refused.
#include <algorithm>
#include <functional>
#include <set>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/model/lora.hpp"

namespace tigon {

namespace {

// How an adapter was made or is found, and nothing that a training step sees.
const std::set<std::string, std::less<>> kHarmless = {
    "auto_mapping", "base_model_name_or_path", "inference_mode", "init_lora_weights", "peft_version", "revision",
    "task_type",    "runtime_config",          "loftq_config",   "eva_config",        "corda_config", "lora_dropout",
    "megatron_core"};

// Fields that must say nothing: null, false, 0, "none", or an empty list.
const std::set<std::string, std::less<>> kOff = {
    "alora_invocation_tokens", "arrow_config",      "bias",        "ensure_weight_tying", "exclude_modules",
    "fan_in_fan_out",          "layer_replication", "lora_bias",   "megatron_config",     "modules_to_save",
    "rank_pattern",            "target_parameters", "use_bdlora",  "use_dora",            "use_qalora",
    "trainable_token_indices", "lora_ga_config",    "monteclora_config"};

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.boolean("");
  if (value.is_number()) return value.number("") == 0;
  if (value.is_string()) return value.string("").empty() || value.string("") == "none";
  if (value.is_array()) return value.array("").empty();
  return value.object("").empty();
}

[[noreturn]] void refuse(const std::string& where, std::string what, std::string expected = {}) {
  throw Error(ErrorCode::invalid_argument, {.where = where, .what = std::move(what), .expected = std::move(expected)});
}

// "q_proj" or "model.layers.*.self_attn.q_proj"; -1: none of ours.
int module_of(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  for (int m = 0; m < kLoraModuleCount; ++m) {
    if (last == to_string(static_cast<LoraModule>(m))) return m;
  }
  return -1;
}

void read_targets(const Json& value, const std::string& where, LoraConfig& lora) {
  if (value.is_string()) {
    if (value.string(where) != "all-linear")
      refuse(where, "'target_modules' is a pattern, which Tigon does not read", "a list of names, or all-linear");
    return lora.targets.fill(true);
  }
  for (const Json& name : value.array(where)) {
    const int module = module_of(name.string(where));
    if (module < 0) {
      refuse(where, "'target_modules' has '" + name.string(where) + "', which is no matrix of a block",
             "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj or down_proj");
    }
    lora.targets[static_cast<size_t>(module)] = true;
  }
}

}  // namespace

LoraConfig lora_from_json(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where);
  const Json* type = json.find("peft_type");
  if (type == nullptr || type->string(where) != "LORA") refuse(where, "these adapters are not LoRA", "peft_type LORA");
  LoraConfig lora{.alpha = 8};
  for (const auto& [key, value] : json.object(where)) {
    if (key == "r") {
      lora.rank = value.integer(where);
    } else if (key == "lora_alpha") {
      lora.alpha = value.number(where);
    } else if (key == "use_rslora") {
      lora.rslora = value.boolean(where);
    } else if (key == "target_modules") {
      read_targets(value, where, lora);
    } else if (key == "alpha_pattern") {
      for (const auto& [name, alpha] : value.object(where)) {
        const int module = module_of(name);
        if (module < 0 || name.find_first_of("*\\[(|0123456789") != std::string::npos)
          refuse(where, "'alpha_pattern' has '" + name + "'", "the name of a module, as q_proj, for all layers");
        lora.own_alpha[static_cast<size_t>(module)] = alpha.number(where);
      }
    } else if (key == "layers_to_transform" || key == "layers_pattern") {
      if (!is_off(value)) refuse(where, "'" + key + "': only some layers have adapters", "adapters in all layers");
    } else if (kOff.contains(key)) {
      if (!is_off(value)) refuse(where, "'" + key + "' asks for something that Tigon does not do", "null or false");
    } else if (key == "qalora_group_size" || key == "peft_type") {
    } else if (!kHarmless.contains(key)) {
      refuse(where, "the field '" + key + "' is not known", "adapters as PEFT's LoRA has them");
    }
  }
  if (lora.rank < 1 || lora.rank > 4096) refuse(where, "'r' is no rank", "1 to 4096");
  if (!(lora.alpha > 0)) refuse(where, "'lora_alpha' is no scale", "a number above 0");
  if (std::none_of(lora.targets.begin(), lora.targets.end(), [](bool has) { return has; }))
    refuse(where, "'target_modules' names nothing");
  return lora;
}

std::string lora_to_json(const LoraConfig& lora, const std::string& base) {
  Json json, alphas{Json::Object()};
  Json::Array targets;
  for (int m = 0; m < kLoraModuleCount; ++m) {
    const std::string name(to_string(static_cast<LoraModule>(m)));
    if (!lora.targets[static_cast<size_t>(m)]) continue;
    targets.emplace_back(name);
    if (const double own = lora.own_alpha[static_cast<size_t>(m)]; own > 0) alphas.set(name, own);
  }
  // PEFT's own type for it is an integer; a fraction is read as well.
  const auto whole = static_cast<int64_t>(lora.alpha);
  json.set("peft_type", "LORA");
  json.set("task_type", "CAUSAL_LM");
  json.set("base_model_name_or_path", base);
  json.set("r", lora.rank);
  json.set("lora_alpha", static_cast<double>(whole) == lora.alpha ? Json(whole) : Json(lora.alpha));
  json.set("lora_dropout", 0.0);
  json.set("target_modules", std::move(targets));
  json.set("use_rslora", lora.rslora);
  json.set("use_dora", false);
  json.set("bias", "none");
  json.set("fan_in_fan_out", false);
  json.set("modules_to_save", Json());
  json.set("alpha_pattern", std::move(alphas));
  json.set("rank_pattern", Json::Object());
  json.set("inference_mode", true);
  return json.dump();
}

}  // namespace tigon
