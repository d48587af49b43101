#pragma once

namespace tigon::cpu {

// What adamw multiplies by, computed in f64 once per call:
//   param −= step_size·m / (sqrt(v)·root_correction2 + eps) + decay·param
struct AdamwFactors {
  float grad_scale;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float root_correction2;  // 1 / sqrt(1 − β2^step)
  float eps;
  float step_size;  // lr / (1 − β1^step)
  float decay;      // lr·weight_decay; apart, because 1 − decay would lose its last digits
};

}  // namespace tigon::cpu
