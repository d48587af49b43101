#include "tigon/model/parameters.hpp"

namespace tigon {

namespace {

// Adds parameters and hands out their places.
class Builder {
 public:
  // Names in the files, with the rows of each.
  using Parts = std::vector<std::pair<std::string, int64_t>>;

  Builder(const ModelConfig& config, std::vector<Parameter>& all) : config_(config), all_(all) {}

  int matrix(std::string name, int64_t columns, const Parts& parts) {
    return add(std::move(name), columns, parts, 0.0, config_.initializer_range, true);
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
    all_.push_back(std::move(parameter));
    return static_cast<int>(all_.size()) - 1;
  }

  const ModelConfig& config_;
  std::vector<Parameter>& all_;
};

}  // namespace

ParameterList::ParameterList(const ModelConfig& config) {
  check_model_config(config, "model");
  Builder add(config, all);
  const int64_t hidden = config.hidden;
  // What was added since the last part is a part.
  const auto end_part = [&](std::string name) {
    const int begin = parts.empty() ? 0 : parts.back().end;
    parts.push_back({.name = std::move(name), .begin = begin, .end = static_cast<int>(all.size())});
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
    blocks.push_back(places);
    end_part("layers." + std::to_string(layer));
  }
  final_norm = add.norm("final_norm", "model.norm.weight", hidden);
  head = config.tied_embeddings ? embedding : add.matrix("head", hidden, {{"lm_head.weight", config.vocab}});
  end_part("end");
}

int64_t ParameterList::elements() const {
  int64_t sum = 0;
  for (const Parameter& parameter : all) sum += parameter.elements();
  return sum;
}

}  // namespace tigon
