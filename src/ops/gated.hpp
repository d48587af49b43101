#pragma once

#include "ops/check.hpp"

namespace tigon::ops {

// The arguments that swiglu and geglu share: c = act(a)·b.
template <class Args>
void check_gated_forward(const Check& check, const Args& args) {
  check.tensor("a", args.a, {-1, -1}, "[tokens, F]");
  const int64_t tokens = args.a.sizes[0], columns = args.a.sizes[1];
  check.floating("a", args.a);
  check.rows_contiguous("a", args.a);
  check.tensor("b", args.b, {tokens, columns}, "as a");
  check.same_dtype("b", args.b, "a", args.a);
  check.rows_contiguous("b", args.b);
  check.tensor("c", args.c, {tokens, columns}, "as a");
  check.same_dtype("c", args.c, "a", args.a);
  check.writable("c", args.c);
  check.apart("c", args.c, "a", args.a, true);
  check.apart("c", args.c, "b", args.b, true);
}

template <class Args>
void check_gated_backward(const Check& check, const Args& args) {
  check.tensor("a", args.a, {-1, -1}, "[tokens, F]");
  const int64_t tokens = args.a.sizes[0], columns = args.a.sizes[1];
  check.floating("a", args.a);
  check.rows_contiguous("a", args.a);
  for (const auto& [name, t] : {std::pair{"dc", &args.dc}, {"b", &args.b}}) {
    check.tensor(name, *t, {tokens, columns}, "as a");
    check.same_dtype(name, *t, "a", args.a);
    check.rows_contiguous(name, *t);
  }
  for (const auto& [name, t] : {std::pair{"da", &args.da}, {"db", &args.db}}) {
    check.tensor(name, *t, {tokens, columns}, "as a");
    check.same_dtype(name, *t, "a", args.a);
    check.writable(name, *t);
    check.apart(name, *t, "dc", args.dc);
  }
  check.optional("c", args.c, {tokens, columns}, "as a");
  check.same_dtype("c", args.c, "a", args.a);
  check.writable("c", args.c);
  check.apart("da", args.da, "a", args.a, true);
  check.apart("da", args.da, "b", args.b);
  check.apart("db", args.db, "a", args.a);
  check.apart("db", args.db, "b", args.b, true);
  check.apart("da", args.da, "db", args.db);
  check.apart("c", args.c, "dc", args.dc, true);
  for (const auto& [name, t] : {std::pair{"a", &args.a}, {"b", &args.b}, {"da", &args.da}, {"db", &args.db}}) {
    check.apart("c", args.c, name, *t);
  }
}

}  // namespace tigon::ops
