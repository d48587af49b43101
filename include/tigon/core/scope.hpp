#pragma once

#include "tigon/core/context.hpp"

namespace tigon {

// Who watches what runs: counters, traces, snapshots. Scopes nest; each enter has its leave.
class Observer {
 public:
  virtual ~Observer() = default;
  // `index` is negative where the name says it all: ("layers", 3), ("qkv", -1).
  virtual void enter(const Context& ctx, std::string_view name, int64_t index) = 0;
  virtual void leave(const Context& ctx) noexcept = 0;
  // Who watches what other threads do for whoever is watched here; may be called by any of them. Null: nobody.
  virtual Observer* beside() noexcept { return nullptr; }
};

// For the contexts of threads that work for `ctx`.
inline Observer* beside(const Context& ctx) noexcept { return ctx.observer ? ctx.observer->beside() : nullptr; }

// Names what runs until it goes out of scope. Costs nothing where nobody watches. The context must outlive it.
class Scope {
 public:
  explicit Scope(const Context& ctx, std::string_view name, int64_t index = -1) : ctx_(ctx) {
    if (ctx_.observer) ctx_.observer->enter(ctx_, name, index);
  }
  ~Scope() {
    if (ctx_.observer) ctx_.observer->leave(ctx_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const Context& ctx_;
};

}  // namespace tigon
