// Every op of the C ABI that the package calls, as a table. An op's line order is the order of its Python arguments.
#include "op.hpp"

namespace tigon::python {

namespace {

template <class Args, auto Run, auto Scratch, size_t N>
Op op(const char* name, const Args& defaults, const Field (&fields)[N]) {
  static_assert(sizeof(Args) <= kLargestArguments);
  return {name, &defaults, sizeof(Args),
          [](const tigon_context* context, const void* args) { return Run(context, static_cast<const Args*>(args)); },
          [](const tigon_context* context, const void* args, int64_t* bytes) {
            return Scratch(context, static_cast<const Args*>(args), bytes);
          },
          fields};
}

// Fields of the struct that is called Args where they are used.
#define TIGON_READS(member, rank) \
  { Field::Kind::tensor, {rank, false}, offsetof(Args, member), #member }
#define TIGON_WRITES(member, rank) \
  { Field::Kind::tensor, {rank, true}, offsetof(Args, member), #member }
#define TIGON_REAL(member) \
  { Field::Kind::real, {}, offsetof(Args, member), #member }
#define TIGON_INT32(member) \
  { Field::Kind::int32, {}, offsetof(Args, member), #member }
#define TIGON_INT64(member) \
  { Field::Kind::int64, {}, offsetof(Args, member), #member }

Op rmsnorm_forward() {
  using Args = tigon_rmsnorm_forward_args;
  static const Args defaults = TIGON_RMSNORM_FORWARD_INIT;
  static const Field fields[] = {TIGON_READS(x, 2),  TIGON_READS(weight, 1), TIGON_WRITES(y, 2),  TIGON_WRITES(rstd, 1),
                                 TIGON_REAL(eps),    TIGON_REAL(offset),     TIGON_INT32(casting)};
  return op<Args, tigon_rmsnorm_forward, tigon_rmsnorm_forward_scratch>("rmsnorm_forward", defaults, fields);
}

Op rmsnorm_backward() {
  using Args = tigon_rmsnorm_backward_args;
  static const Args defaults = TIGON_RMSNORM_BACKWARD_INIT;
  static const Field fields[] = {TIGON_READS(dy, 2),   TIGON_READS(x, 2),       TIGON_READS(weight, 1),
                                 TIGON_READS(rstd, 1), TIGON_WRITES(dx, 2),     TIGON_WRITES(dweight, 1),
                                 TIGON_REAL(offset),   TIGON_INT32(casting)};
  return op<Args, tigon_rmsnorm_backward, tigon_rmsnorm_backward_scratch>("rmsnorm_backward", defaults, fields);
}

}  // namespace

std::span<const Op> ops() {
  static const Op all[] = {rmsnorm_forward(), rmsnorm_backward()};
  return all;
}

}  // namespace tigon::python
