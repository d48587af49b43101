#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/core/dtype.hpp"
#include "tigon/model/parameters.hpp"

namespace tigon {

struct TrainConfig;

// What the optimizer remembers of a parameter from step to step.
//   adamw   m and v in the types of the precision
//   adamw8  in 8 bits, a scale for 256 elements (ops/adamw.hpp), but of norms, biases, small matrices and the
//   embedding,
//           of which little is saved or much is lost, as adamw
enum class Optimizer : uint8_t { adamw, adamw8 };
Optimizer optimizer_from_string(std::string_view text);
std::string_view to_string(Optimizer optimizer) noexcept;
std::vector<std::string> optimizer_names();

struct OptimizerOptions {
  Optimizer kind = Optimizer::adamw;
  bool embedding_in_8_bits = false;   // adamw8: the embedding, and a head that is the embedding, too
  int64_t smallest_in_8_bits = 4096;  // adamw8: elements of a matrix
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of matrices; norms and biases do not decay
};

// One of the arrays that an optimizer keeps of a parameter. Whatever moves, saves or plans states knows no more of
// them.
struct StateSpec {
  const char* name;  // "master", "m", "v", "m_scale", "v_scale"
  DType dtype = DType::f32;
  int64_t span = 1;            // elements of the parameter that share one of it
  bool copies_weight = false;  // else it begins at zero

  // Of so many elements of the parameter.
  int64_t elements(int64_t of_parameter) const { return (of_parameter + span - 1) / span; }
  int64_t bytes(int64_t of_parameter) const { return elements(of_parameter) * size_of(dtype); }
};
std::vector<StateSpec> optimizer_states(const ParameterList& parameters, int parameter, const TrainConfig& train);
// Where an update may be cut: a multiple of every span.
int64_t update_unit(const TrainConfig& train);

// Bytes of all of them.
int64_t state_bytes(const ParameterList& parameters, const TrainConfig& train);
// Weights, gradients, master copies and states, as if all gradients were there at once.
int64_t static_bytes(const ParameterList& parameters, const TrainConfig& train);

}  // namespace tigon
