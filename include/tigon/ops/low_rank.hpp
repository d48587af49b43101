#pragma once

#include "tigon/ops/adamw.hpp"

namespace tigon::ops {

// What optimizers whose memory is of low rank are made of, beside products and adamw. They are the backends' alone: the
// C ABI has none of them.

// y_i = deviation·z_i, standard normal numbers that are a function of (seed, step, tensor_id, first_element + i) alone:
// RandomStream's. Computed in f64 and rounded once; a GPU's may differ from a CPU's in the last bit.
struct Normal {
  Tensor y{};  // any shape, contiguous
  double deviation = 1.0;
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t tensor_id = 0;
  int64_t first_element = 0;
};
void normal(const Context& ctx, const Normal& args);

// By what APOLLO multiplies each channel of a gradient (a row, or a column), given what Adam makes of it in a small
// space; with s = grad_scale:
//   ratio_j = ‖direction_j‖ / (s·‖projected_j‖ + 1e-8), or with `whole` the same of all channels together
//   length = ‖(ratio_j·s·grad_j)_j‖
//   limit = length / (growth·(last + 1e-8)) where that is more than 1 and last is not 0, else 1
//   factors_j = gain·ratio_j·s / limit;  last = length / limit
// Norms are summed in f64, in an order fixed by the shapes.
struct ApolloFactors {
  Tensor projected{};    // [channels, rank] f32
  Tensor direction{};    // [channels, rank] f32
  Tensor grad{};         // [rows, columns] any floating type, contiguous
  Tensor grad_scale{};   // [1] f32, optional: clipping and loss scale
  Tensor last{};         // [1] f32: the length of the last step's update, 0 before the first
  Tensor factors{};      // [channels] f32, written
  bool columns = false;  // channels are grad's columns, else its rows
  bool whole = false;
  double gain = 1.0;
  double growth = 1.01;
};
void apollo_factors(const Context& ctx, const ApolloFactors& args);

// The rows become orthonormal: each in its turn is made one long, and taken out of those behind it (modified
// Gram–Schmidt), so that the first of them span what they spanned. A row of which others leave no more than kLostRow of
// its length was theirs but for rounding: it becomes RandomStream{}.uniform − ½. All of that kOrthonormalPasses times,
// since once leaves rounding errors. Dot products are summed in f64, in an order fixed by the shape.
inline constexpr int kOrthonormalPasses = 3;
inline constexpr double kLostRow = 1e-6;
struct Orthonormalize {
  Tensor rows{};  // [rank, n] f32, contiguous, rank ≤ n
};
void orthonormalize(const Context& ctx, const Orthonormalize& args);

// param −= lr·factor·grad, then param −= decay·param; rounded as by adamw, with the same random bits.
struct ScaledUpdate {
  Tensor param{};       // [rows, columns] f32, bf16 or f16
  Tensor grad{};        // [rows, columns] any floating type
  Tensor factors{};     // [rows] f32, or [columns] with `columns`; optional: 1
  Tensor param_copy{};  // [rows, columns] f32, bf16 or f16, optional: receives the new param, as stored, to nearest
  bool columns = false;
  double lr = 1e-3;
  double decay = 0.0;
  Rounding rounding = Rounding::nearest;
  uint64_t seed = 0;
  int64_t step = 1;
  uint32_t tensor_id = 0;
  int64_t first_element = 0;  // index of param[0, 0] in the whole tensor
};
void scaled_update(const Context& ctx, const ScaledUpdate& args);

}  // namespace tigon::ops
