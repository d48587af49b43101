#pragma once

#include "train/update.hpp"

namespace tigon {

// One matrix of a parameter that is updated whole, with the states that are its own. Its shorter side is projected to
// the rank; the elements of the longer one are its channels.
struct Matrix {
  Tensor weight, gradient, copy;  // [rows, columns]
  Tensor m, v;                    // [channels·rank], flat
  Tensor last;                    // [1], of APOLLO
  Tensor projection;              // [rank·shorter], flat, of GaLore
  int64_t first_element = 0;      // of the parameter
  int64_t first_state = 0;        // of m and v

  int64_t rows() const { return gradient.sizes[0]; }
  int64_t columns() const { return gradient.sizes[1]; }
  bool wide() const { return rows() < columns(); }
  int64_t channels() const { return wide() ? columns() : rows(); }
  int64_t shorter() const { return wide() ? rows() : columns(); }
};

// An update of one parameter's matrices, and what the optimizers of low rank have in common.
struct LowRankUpdate {
  const Context& ctx;
  const TrainConfig& train;
  int parameter = 0;
  bool decays = false;
  const Tensor& grad_scale;
  const UpdateArgs& args;

  int64_t rank() const { return rank_of(train.optimizer); }
  // Steps with the same projection are numbered.
  int64_t projection_number() const { return (args.adam_step - 1) / gap_of(train.optimizer); }
  bool projection_is_new() const { return (args.adam_step - 1) % gap_of(train.optimizer) == 0; }
  // A tensor of the small space, [channels, rank] or the other way round.
  OwnedTensor in_small_space(const char* name, const Matrix& matrix, DType dtype, bool channels_first) const;
  // deviation·random numbers of this matrix and projection, and nobody else's.
  void draw(const Matrix& matrix, const Tensor& y, double deviation) const;
  // direction = m / (sqrt(v) + eps) of the projected gradient.
  void adam(const Matrix& matrix, const Tensor& projected, const Tensor& direction) const;
  // Rows from `first_row` on of the weight: −= step size·gain·factors·update.
  void apply(const Matrix& matrix, int64_t first_row, const Tensor& update, const Tensor& factors, double gain) const;
  // By how much a step is too long as long as m and v begin at zero: the step size is lr·sqrt(1 − β2^t) / (1 − β1^t).
  double correction() const;
};

// What each does with a matrix.
void apollo_update(const LowRankUpdate& update, const Matrix& matrix);
void galore_update(const LowRankUpdate& update, const Matrix& matrix);

}  // namespace tigon
