#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "capi/convert.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/version.hpp"
#include "tigon/memory/arena.hpp"

namespace tigon::capi {

namespace {

thread_local std::string last_error;  // NOLINT: the C idiom for explaining an error number

Context make_context(const tigon_context& c) {
  if (c.device != TIGON_CPU && c.device != TIGON_CUDA) {
    throw Error(ErrorCode::invalid_argument, {.where = "tigon_context",
                                              .what = "there is no such device",
                                              .expected = "TIGON_CPU or TIGON_CUDA",
                                              .got = std::to_string(c.device)});
  }
  if (c.device_index < 0 || c.scratch_bytes < 0 || (c.scratch == nullptr && c.scratch_bytes > 0)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "tigon_context",
                 .what = "a field is out of range",
                 .expected = "device_index and scratch_bytes not negative, scratch set when it has bytes"});
  }
  return {.device = {static_cast<DeviceKind>(c.device), c.device_index}, .stream = c.stream, .threads = c.threads};
}

// No exception leaves the library.
template <class Body>
int guarded(const Body& body) noexcept {
  const auto fail = [](ErrorCode code, const char* text) {
    try {
      last_error = text;
    } catch (...) {
      last_error.clear();
    }
    return static_cast<int>(code);
  };
  try {
    body();
    return TIGON_OK;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "the system refused memory");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, error.what());
  } catch (...) {
    return fail(ErrorCode::internal, "an unknown exception");
  }
}

template <class CArgs, class Args>
int run(const tigon_context* context, const CArgs* args, void (*op)(const Context&, const Args&)) noexcept {
  return guarded([&] {
    const tigon_context c = read_struct(context, "tigon_context");
    const CArgs a = read_struct(args, "args");
    Context ctx = make_context(c);
    StackArena scratch(c.scratch, c.scratch_bytes);
    ctx.memory = &scratch;
    const Arguments in(ctx.device);
    op(ctx, convert(a, in));
  });
}

// The op itself in measure mode says what scratch it needs, so the answer cannot disagree with the call.
template <class CArgs, class Args>
int measure(const tigon_context* context, const CArgs* args, void (*op)(const Context&, const Args&),
            int64_t* bytes) noexcept {
  return guarded([&] {
    if (bytes == nullptr) throw Error(ErrorCode::invalid_argument, {.where = "scratch", .what = "'bytes' is NULL"});
    const CArgs a = read_struct(args, "args");
    Context ctx = make_context(read_struct(context, "tigon_context"));
    StackArena scratch = StackArena::measuring_arena();
    ctx.memory = &scratch;
    const Arguments in(ctx.device);
    op(ctx, convert(a, in));
    *bytes = scratch.bytes_needed();
  });
}

}  // namespace

}  // namespace tigon::capi

using tigon::capi::ArgsOf;
using tigon::capi::measure;
using tigon::capi::run;
namespace ops = tigon::ops;

extern "C" {

const char* tigon_version(void) { return tigon::version(); }
const char* tigon_last_error(void) { return tigon::capi::last_error.c_str(); }

#define TIGON_C_FUNCTIONS(name, Args)                                                                          \
  int tigon_##name(const tigon_context* context, const ArgsOf<tigon_##name>* args) {                           \
    return run(context, args, &ops::name);                                                                     \
  }                                                                                                            \
  int tigon_##name##_scratch(const tigon_context* context, const ArgsOf<tigon_##name>* args, int64_t* bytes) { \
    return measure(context, args, &ops::name, bytes);                                                          \
  }
TIGON_OPS(TIGON_C_FUNCTIONS)
#undef TIGON_C_FUNCTIONS

}  // extern "C"
