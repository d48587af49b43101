// adapter_config.json, both ways. Every field is used, known not to matter for training, off, or refused.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/model/lora.hpp"

namespace tigon {

namespace {

using Names = std::set<std::string, std::less<>>;

// How an adapter was made or is found, and nothing that a training step sees.
const Names kHarmless = {"auto_mapping",      "base_model_name_or_path",
                         "corda_config",      "eva_config",
                         "inference_mode",    "loftq_config",
                         "lora_dropout",      "megatron_core",
                         "peft_type",         "peft_version",
                         "qalora_group_size", "revision",
                         "runtime_config",    "task_type"};
// Of the ways to begin A and B, those that leave the model as it is. What others begin with, as PiSSA, PEFT takes out
// of the model's weights whenever it loads such adapters.
const Names kLeaveTheModel = {"eva", "gaussian", "orthogonal"};

// null, false, 0, "none", or an empty list.
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

bool is_rank(int64_t rank) { return rank >= 1 && rank <= 4096; }

// What PEFT has for some modules. Its keys are regular expressions for the ends of their names; names alone are read,
// each module once, so that the first match that PEFT takes is the only one. `set` says whether it was a value.
template <class Set>
void read_pattern(const Json& value, const std::string& key, const std::string& where, const Set& set) {
  std::set<int> seen;
  for (const auto& [name, own] : value.object(where)) {
    const int module = module_of(name);
    const std::string short_name = module < 0 ? "" : std::string(to_string(static_cast<LoraModule>(module)));
    const char* parent = module < static_cast<int>(LoraModule::gate) ? "self_attn." : "mlp.";
    if (module < 0 || (name != short_name && name != parent + short_name) || !seen.insert(module).second)
      refuse(where, "'" + key + "' has '" + name + "'", "the name of a module, as q_proj, for all layers, once");
    if (!set(static_cast<size_t>(module), own)) refuse(where, "'" + key + "' of '" + name + "' is out of range");
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
      read_pattern(value, key, where, [&](size_t module, const Json& alpha) {
        lora.own_alpha[module] = alpha.number(where);
        return lora.own_alpha[module] > 0;
      });
    } else if (key == "rank_pattern") {
      read_pattern(value, key, where, [&](size_t module, const Json& rank) {
        lora.own_rank[module] = rank.integer(where);
        return is_rank(lora.own_rank[module]);
      });
    } else if (key == "init_lora_weights") {
      if (value.is_string() && !kLeaveTheModel.contains(value.string(where))) {
        refuse(
            where,
            "'init_lora_weights' is '" + value.string(where) + "': PEFT then changes the model too, or trains less",
            fmt::format("true, {}, or what save_pretrained(path_initial_model_for_weight_conversion=...) makes of it",
                        fmt::join(kLeaveTheModel, ", ")));
      }
    } else if (key == "layers_to_transform" || key == "layers_pattern") {
      if (!is_off(value)) refuse(where, "'" + key + "': only some layers have adapters", "adapters in all layers");
    } else if (!kHarmless.contains(key) && !is_off(value)) {
      // Those of later versions too: what is new there is off where nobody asked for it.
      refuse(where, "'" + key + "' asks for something that Tigon does not do", "null or false");
    }
  }
  if (!is_rank(lora.rank)) refuse(where, "'r' is no rank", "1 to 4096");
  if (!(lora.alpha > 0)) refuse(where, "'lora_alpha' is no scale", "a number above 0");
  if (std::none_of(lora.targets.begin(), lora.targets.end(), [](bool has) { return has; }))
    refuse(where, "'target_modules' names nothing");
  for (size_t m = 0; m < kLoraModuleCount; ++m) {  // a pattern may speak of what has no adapter
    if (!lora.targets[m]) lora.own_alpha[m] = 0, lora.own_rank[m] = 0;
  }
  return lora;
}

std::string lora_to_json(const LoraConfig& lora, const std::string& base) {
  Json json, alphas{Json::Object()}, ranks{Json::Object()};
  Json::Array targets;
  for (int m = 0; m < kLoraModuleCount; ++m) {
    const std::string name(to_string(static_cast<LoraModule>(m)));
    if (!lora.targets[static_cast<size_t>(m)]) continue;
    targets.emplace_back(name);
    if (const double own = lora.own_alpha[static_cast<size_t>(m)]; own > 0) alphas.set(name, own);
    if (const int64_t own = lora.own_rank[static_cast<size_t>(m)]; own > 0) ranks.set(name, own);
  }
  // PEFT's own type for it is an integer; a fraction is read as well.
  const bool whole = lora.alpha < 0x1p53 && lora.alpha == std::floor(lora.alpha);
  json.set("peft_type", "LORA");
  json.set("task_type", "CAUSAL_LM");
  json.set("base_model_name_or_path", base);
  json.set("r", lora.rank);
  json.set("lora_alpha", whole ? Json(static_cast<int64_t>(lora.alpha)) : Json(lora.alpha));
  json.set("lora_dropout", 0.0);
  json.set("target_modules", std::move(targets));
  json.set("use_rslora", lora.rslora);
  json.set("use_dora", false);
  json.set("bias", "none");
  json.set("fan_in_fan_out", false);
  json.set("modules_to_save", Json());
  json.set("alpha_pattern", std::move(alphas));
  json.set("rank_pattern", std::move(ranks));
  json.set("inference_mode", true);
  return json.dump();
}

}  // namespace tigon
