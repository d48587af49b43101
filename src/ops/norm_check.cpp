#include "ops/norm_check.hpp"

namespace tigon::ops {

NormCheck::NormCheck(const char* op, const Context& ctx, const char* like_name, const Tensor& like)
    : Check(op, ctx),
      like_name_(like_name),
      like_(like),
      as_like_("as " + std::string(like_name)),
      hidden_of_like_("hidden of " + std::string(like_name)),
      tokens_of_like_("tokens of " + std::string(like_name)) {
  tensor(like_name, like, {-1, -1}, "[tokens, hidden]");
  floating(like_name, like);
  rows_contiguous(like_name, like);
  tokens_ = like.sizes[0];
  hidden_ = like.sizes[1];
}

void NormCheck::input(const char* name, const Tensor& t) const {
  tensor(name, t, {tokens_, hidden_}, as_like_.c_str());
  same_dtype(name, t, like_name_, like_);
  rows_contiguous(name, t);
}

void NormCheck::optional_input(const char* name, const Tensor& t) const {
  if (t.present()) input(name, t);
}

void NormCheck::output(const char* name, const Tensor& t) const {
  tensor(name, t, {tokens_, hidden_}, as_like_.c_str());
  same_dtype(name, t, like_name_, like_);
  writable(name, t);
}

void NormCheck::optional_output(const char* name, const Tensor& t) const {
  if (t.present()) output(name, t);
}

void NormCheck::hidden_parameter(const char* name, const Tensor& t) const {
  optional(name, t, {hidden_}, hidden_of_like_.c_str());
  parameter(name, t, like_);
  contiguous(name, t);
}

void NormCheck::token_statistic(const char* name, const Tensor& t) const {
  tensor(name, t, {tokens_}, tokens_of_like_.c_str());
  statistic(name, t, like_);
  contiguous(name, t);
}

void NormCheck::optional_token_statistic(const char* name, const Tensor& t) const {
  if (t.present()) token_statistic(name, t);
}

void NormCheck::rms_options(double offset, NormCasting casting) const {
  finite("offset", offset);
  known("casting", casting, NormCasting::none);
}

void NormCheck::apart_from_all(const char* out_name, const Tensor& out, std::initializer_list<Named> others) const {
  for (const Named& other : others) apart(out_name, out, other.name, other.t);
}

}  // namespace tigon::ops
