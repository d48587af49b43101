#include "tigon/model/parameters.hpp"

#include <algorithm>
#include <cmath>

namespace tigon {

namespace {

// Adds parameters and hands out their places.
class Builder {
 public:
  // Names in the files, with the rows of each.
  using Parts = std::vector<std::pair<std::string, int64_t>>;

  // Beside adapters everything else is frozen.
  Builder(const ModelConfig& config, std::vector<Parameter>& all, bool trains)
      : config_(config), all_(all), trains_(trains) {}

  int matrix(std::string name, int64_t columns, const Parts& parts) {
    return add(std::move(name), columns, parts, 0.0, config_.initializer_range, true);
  }
  int adapter_a(std::string name, int64_t columns, const Parts& parts) {
    // The deviation of PEFT's uniform values.
    return adapter(add(std::move(name), columns, parts, 0.0, 1 / std::sqrt(3.0 * static_cast<double>(columns)), true));
  }
  // It begins at zero, so the first step is the base's.
  int adapter_b(std::string name, const Parts& parts, const std::vector<int64_t>& ranks) {
    const int place = adapter(add(std::move(name), 0, parts, 0.0, 0.0, true));
    for (size_t i = 0; i < ranks.size(); ++i) all_.back().parts[i].columns = ranks[i];
    return place;
  }
  int vector(std::string name, const Parts& parts, double value) {
    return add(std::move(name), 0, parts, value, 0.0, false);
  }
  // A norm's weight starts so that offset + weight is 1.
  int norm(std::string name, std::string file_name, int64_t size) {
    return vector(std::move(name), {{std::move(file_name), size}}, 1.0 - config_.norm_offset);
  }

 private:
  int add(std::string name, int64_t columns, const Parts& parts, double mean, double range, bool decays) {
    Parameter parameter{.name = std::move(name), .init_mean = mean, .init_range = range, .decays = decays};
    int64_t rows = 0;
    for (const auto& [part, size] : parts) {
      parameter.parts.push_back({.name = part, .begin = rows, .end = rows + size});
      rows += size;
    }
    parameter.sizes = columns > 0 ? std::vector<int64_t>{rows, columns} : std::vector<int64_t>{rows};
    parameter.trains = trains_;
    all_.push_back(std::move(parameter));
    return static_cast<int>(all_.size()) - 1;
  }

  int adapter(int place) {
    all_.back().trains = all_.back().adapter = true;
    return place;
  }

  const ModelConfig& config_;
  std::vector<Parameter>& all_;
  bool trains_;
};

constexpr std::array kAdapted = {BlockWeight::qkv, BlockWeight::o, BlockWeight::gate_up, BlockWeight::down};

}  // namespace

std::vector<LoraPart> lora_parts(const ModelConfig& c, const LoraConfig& lora, BlockWeight weight) {
  using Module = LoraModule;
  std::vector<std::pair<Module, int64_t>> modules;  // and their rows
  switch (weight) {
    case BlockWeight::qkv:
      modules = {{Module::q, c.q_width()}, {Module::k, c.kv_width()}, {Module::v, c.kv_width()}};
      break;
    case BlockWeight::o: modules = {{Module::o, c.hidden}}; break;
    case BlockWeight::gate_up: modules = {{Module::gate, c.intermediate}, {Module::up, c.intermediate}}; break;
    case BlockWeight::down: modules = {{Module::down, c.hidden}}; break;
    default: return {};
  }
  std::vector<LoraPart> parts;
  int64_t row = 0, a = 0, b = 0;
  for (const auto& [module, rows] : modules) {
    if (lora.has(module)) {
      const int64_t rank = lora.rank_of(module);
      parts.push_back({.module = module, .begin = row, .end = row + rows, .rank = rank, .a = a, .b = b});
      a += rank;
      b = parts.back().b_end();
    }
    row += rows;
  }
  return parts;
}

BlockWeight adapter_a(BlockWeight weight) {
  switch (weight) {
    case BlockWeight::qkv: return BlockWeight::qkv_a;
    case BlockWeight::o: return BlockWeight::o_a;
    case BlockWeight::gate_up: return BlockWeight::gate_up_a;
    default: return BlockWeight::down_a;
  }
}

BlockWeight adapter_b(BlockWeight weight) {
  return static_cast<BlockWeight>(static_cast<int32_t>(adapter_a(weight)) + 1);
}

ParameterList::ParameterList(const ModelConfig& config, const LoraConfig& lora) {
  check_model_config(config, "model");
  Builder add(config, all, !lora.any());
  const int64_t hidden = config.hidden;
  // What was added since the last part is a part.
  const auto end_part = [&](std::string name) {
    const int begin = parts.empty() ? 0 : parts.back().end;
    const auto first = std::find_if(all.begin() + begin, all.end(), [](const Parameter& p) { return p.trains; });
    parts.push_back({.name = std::move(name),
                     .begin = begin,
                     .trained = static_cast<int>(first - all.begin()),
                     .end = static_cast<int>(all.size())});
  };
  embedding = add.matrix("embedding", hidden, {{"model.embed_tokens.weight", config.vocab}});
  end_part("embedding");
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string ours = "layers." + std::to_string(layer) + ".", theirs = "model." + ours;
    const std::string attention = theirs + "self_attn.", mlp = theirs + "mlp.";
    std::array<int, kBlockWeightCount> places{};
    places.fill(-1);
    const auto at = [&](BlockWeight weight) -> int& { return places[static_cast<size_t>(weight)]; };
    const auto qkv = [&](const char* what) {
      return Builder::Parts{{attention + "q_proj." + what, config.q_width()},
                            {attention + "k_proj." + what, config.kv_width()},
                            {attention + "v_proj." + what, config.kv_width()}};
    };
    at(BlockWeight::norm1) = add.norm(ours + "norm1", theirs + "input_layernorm.weight", hidden);
    at(BlockWeight::qkv) = add.matrix(ours + "qkv", hidden, qkv("weight"));
    if (config.qkv_bias) at(BlockWeight::qkv_bias) = add.vector(ours + "qkv_bias", qkv("bias"), 0.0);
    if (config.qk_norm) {
      at(BlockWeight::q_norm) = add.norm(ours + "q_norm", attention + "q_norm.weight", config.head_dim);
      at(BlockWeight::k_norm) = add.norm(ours + "k_norm", attention + "k_norm.weight", config.head_dim);
    }
    at(BlockWeight::o) = add.matrix(ours + "o", config.q_width(), {{attention + "o_proj.weight", hidden}});
    at(BlockWeight::norm2) = add.norm(ours + "norm2", theirs + "post_attention_layernorm.weight", hidden);
    at(BlockWeight::gate_up) =
        add.matrix(ours + "gate_up", hidden,
                   {{mlp + "gate_proj.weight", config.intermediate}, {mlp + "up_proj.weight", config.intermediate}});
    at(BlockWeight::down) = add.matrix(ours + "down", config.intermediate, {{mlp + "down_proj.weight", hidden}});
    for (const BlockWeight weight : kAdapted) {
      all[static_cast<size_t>(at(weight))].product = true;
      const std::vector<LoraPart> adapted = lora_parts(config, lora, weight);
      if (adapted.empty()) continue;
      const Parameter& base = all[static_cast<size_t>(at(weight))];
      const std::string name = base.name;
      const int64_t in = base.sizes[1];
      Builder::Parts a, b;
      std::vector<int64_t> ranks;
      for (const LoraPart& part : adapted) {
        const bool in_mlp = weight == BlockWeight::gate_up || weight == BlockWeight::down;
        const std::string module =
            "base_model.model." + (in_mlp ? mlp : attention) + std::string(to_string(part.module));
        a.emplace_back(module + ".lora_A.weight", part.rank);
        b.emplace_back(module + ".lora_B.weight", part.b_end() - part.b);
        ranks.push_back(part.rank);
      }
      at(adapter_a(weight)) = add.adapter_a(name + ".lora_a", in, a);
      at(adapter_b(weight)) = add.adapter_b(name + ".lora_b", b, ranks);
    }
    blocks.push_back(places);
    end_part("layers." + std::to_string(layer));
  }
  final_norm = add.norm("final_norm", "model.norm.weight", hidden);
  head = config.tied_embeddings ? embedding : add.matrix("head", hidden, {{"lm_head.weight", config.vocab}});
  end_part("end");
}

int64_t ParameterList::trained_elements() const {
  int64_t sum = 0;
  for (const Parameter& parameter : all) sum += parameter.trains ? parameter.elements() : 0;
  return sum;
}

int64_t ParameterList::elements() const {
  int64_t sum = 0;
  for (const Parameter& parameter : all) sum += parameter.elements();
  return sum;
}

}  // namespace tigon
