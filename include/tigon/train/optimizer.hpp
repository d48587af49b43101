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
//           embedding, of which little is saved or much is lost, as adamw
//   apollo  of attention's and the MLP's matrices m and v of a random projection of the gradient: `rank` numbers for
//           each channel, by which the gradient itself is scaled; of all else as adamw
//   apollo_mini  the same with one factor for a whole matrix
//   galore  m and v of the gradient's projection to its largest singular vectors, and these
enum class Optimizer : uint8_t { adamw, adamw8, apollo, apollo_mini, galore };
Optimizer optimizer_from_string(std::string_view text);
std::string_view to_string(Optimizer optimizer) noexcept;
std::vector<std::string> optimizer_names();
// Whether it keeps little of the large matrices, and needs all of their gradient at once.
inline bool is_low_rank(Optimizer optimizer) { return optimizer >= Optimizer::apollo; }

struct OptimizerOptions {
  Optimizer kind = Optimizer::adamw;
  bool embedding_in_8_bits = false;   // adamw8: the embedding, and a head that is the embedding, too
  int64_t smallest_in_8_bits = 4096;  // adamw8: elements of a matrix
  int64_t rank = 0;                   // of those of low rank; 0: what rank_of says
  int64_t gap = 0;                    // of those: steps with the same projection; 0: what gap_of says
  double scale = 0;                   // of those: what an update is multiplied by, of APOLLO its root; 0: scale_of
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // of matrices; norms and biases do not decay
};

// As given, else as their authors have them.
int64_t rank_of(const OptimizerOptions& options);
int64_t gap_of(const OptimizerOptions& options);
double scale_of(const OptimizerOptions& options);

// All of them in a line: for a plan, and for a checkpoint, whose states are of no use to another optimizer.
std::string optimizer_text(const OptimizerOptions& options);

// One of the arrays that an optimizer keeps of a parameter. Whatever moves, saves or plans states knows no more of
// them.
struct StateSpec {
  const char* name;  // "master", "m", "v", "m_scale", "v_scale", "last", "projection"
  DType dtype = DType::f32;
  int64_t span = 1;            // elements of the parameter that share one of it
  bool copies_weight = false;  // else it begins at zero
  int64_t count = 0;           // elements for the whole parameter, which is not cut then; 0: as span says

  // Of so many elements of the parameter.
  int64_t elements(int64_t of_parameter) const { return count > 0 ? count : (of_parameter + span - 1) / span; }
  int64_t bytes(int64_t of_parameter) const { return elements(of_parameter) * size_of(dtype); }
};
std::vector<StateSpec> optimizer_states(const ParameterList& parameters, int parameter, const TrainConfig& train);
// Whether an update needs the whole gradient of a parameter at once, and all of it is one piece.
bool updated_whole(const ParameterList& parameters, int parameter, const TrainConfig& train);
// Where any other may be cut: a multiple of every span.
int64_t update_unit(const TrainConfig& train);
// Elements of a piece of at most `most` of them, where those from `first` on are left.
int64_t piece_elements(const ParameterList& parameters, int parameter, const TrainConfig& train, int64_t most,
                       int64_t first = 0);

// Bytes of all of them.
int64_t state_bytes(const ParameterList& parameters, const TrainConfig& train);
// Weights, gradients, master copies and states, as if all gradients were there at once.
int64_t static_bytes(const ParameterList& parameters, const TrainConfig& train);

}  // namespace tigon
