#pragma once

#include <initializer_list>
#include <string>

#include "ops/check.hpp"
#include "tigon/ops/rmsnorm.hpp"

namespace tigon::ops {

// The argument checks that the norms share. All tensors follow one [tokens, hidden] tensor: x, or what x became.
class NormCheck : public Check {
 public:
  // Checks `like` itself.
  NormCheck(const char* op, const Context& ctx, const char* like_name, const Tensor& like);

  // [tokens, hidden] in the type of `like`, read or written.
  void input(const char* name, const Tensor& t) const;
  void optional_input(const char* name, const Tensor& t) const;
  void output(const char* name, const Tensor& t) const;
  void optional_output(const char* name, const Tensor& t) const;
  // [hidden], always optional: weight, bias and their gradients.
  void hidden_parameter(const char* name, const Tensor& t) const;
  // [tokens]: mean and rstd.
  void token_statistic(const char* name, const Tensor& t) const;
  void optional_token_statistic(const char* name, const Tensor& t) const;

  void eps(double value) const { in_range("eps", value, 0, 1); }
  void rms_options(double offset, NormCasting casting) const;

  struct Named {
    const char* name;
    const Tensor& t;
  };
  void apart_from_all(const char* out_name, const Tensor& out, std::initializer_list<Named> others) const;

 private:
  const char* like_name_;
  const Tensor& like_;
  int64_t tokens_ = 0, hidden_ = 0;
  std::string as_like_, hidden_of_like_, tokens_of_like_;
};

}  // namespace tigon::ops
