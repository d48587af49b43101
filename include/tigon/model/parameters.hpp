#pragma once

#include <array>
#include <string>
#include <vector>

#include "tigon/model/lora.hpp"
#include "tigon/model/model_config.hpp"

namespace tigon {

// The weights of one block. q, k and v stand in one matrix, gate and up in another, so that each is one product. Behind
// them the adapters of those that have some: A [ranks of its modules, in], and one after another the B [outputs, rank]
// of its modules, in a flat array, since their ranks may differ.
enum class BlockWeight : int32_t {
  norm1,
  qkv,
  qkv_bias,
  q_norm,
  k_norm,
  o,
  norm2,
  gate_up,
  down,
  qkv_a,
  qkv_b,
  o_a,
  o_b,
  gate_up_a,
  gate_up_b,
  down_a,
  down_b
};
inline constexpr int kBlockWeightCount = 17;

// An adapter of some rows of a weight.
struct LoraPart {
  LoraModule module = LoraModule::q;
  int64_t begin = 0, end = 0;  // rows of the weight
  int64_t rank = 0;
  int64_t a = 0, b = 0;  // its first row in A and its first element in B

  int64_t b_end() const { return b + (end - begin) * rank; }
};
// Of the weights that products are with: qkv, o, gate_up, down. In the order of their rows.
std::vector<LoraPart> lora_parts(const ModelConfig& config, const LoraConfig& lora, BlockWeight weight);
// Where its A and B are.
BlockWeight adapter_a(BlockWeight weight);
BlockWeight adapter_b(BlockWeight weight);

// A tensor of a Hugging Face file that is some rows of one of our parameters.
struct ParameterPart {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t begin = 0, end = 0;
  int64_t columns = 0;  // where above 0 the parameter is flat, and elements [begin, end) are a matrix in the file
};

// One array of the model.
struct Parameter {
  std::string name;              // "layers.0.qkv"
  std::vector<int64_t> sizes{};  // [rows, columns], or [elements]
  std::vector<ParameterPart> parts{};
  double init_mean = 0.0;  // of random weights
  double init_range = 0.0;
  bool decays = false;   // matrices decay, norms and biases do not
  bool trains = true;    // else it is frozen: it has no gradient and no states
  bool adapter = false;  // of an adapter's files, not of the model's
  bool product = false;  // a matrix of a block

  int64_t elements() const { return sizes.size() == 2 ? sizes[0] * sizes[1] : sizes[0]; }
  int64_t elements_of(const ParameterPart& part) const {
    return (part.end - part.begin) * (sizes.size() == 2 ? sizes[1] : 1);
  }
};

// What is loaded, differentiated and updated together: parameters [begin, end) of the list. Those from `trained` on
// have gradients; what is frozen stands before them.
struct Part {
  std::string name;  // "embedding", "layers.3", "end"
  int begin = 0, trained = 0, end = 0;
};

// All parameters in the order of the forward pass, and where each stands in that list.
struct ParameterList {
  // Throws Error unless check_model_config accepts the model.
  explicit ParameterList(const ModelConfig& config, const LoraConfig& lora = {});

  std::vector<Parameter> all;
  int embedding = -1;
  int final_norm = -1;
  int head = -1;  // the embedding's index where they are tied
  // [layer][BlockWeight]; -1 for what this model has not.
  std::vector<std::array<int, kBlockWeightCount>> blocks;
  // The embedding, each block, the final norm with the head. A head that is the embedding belongs to its part.
  std::vector<Part> parts;

  int64_t elements() const;
  int64_t trained_elements() const;
  int embedding_part() const { return 0; }
  int block_part(int64_t layer) const { return static_cast<int>(layer) + 1; }
  int end_part() const { return static_cast<int>(blocks.size()) + 1; }
  int head_part() const { return head == embedding ? embedding_part() : end_part(); }
};

}  // namespace tigon
