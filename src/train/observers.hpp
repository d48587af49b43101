#pragma once

#include <string>
#include <vector>

#include "tigon/core/scope.hpp"
#include "tigon/ops/device_trace.hpp"

namespace tigon {

// Several observers as one. The first of them watch one thread alone; those that are added watch the others as well.
class Observers final : public Observer {
 public:
  explicit Observers(std::vector<Observer*> first) { first_.list = std::move(first); }
  // Before anything is watched.
  void add(Observer& observer) { others_.list.push_back(&observer); }

  void enter(const Context& ctx, std::string_view name, int64_t index) override {
    first_.enter(ctx, name, index);
    others_.enter(ctx, name, index);
  }
  void leave(const Context& ctx) noexcept override {
    others_.leave(ctx);
    first_.leave(ctx);
  }
  Observer* beside() noexcept override { return others_.list.empty() ? nullptr : &others_; }

 private:
  struct List final : Observer {
    void enter(const Context& ctx, std::string_view name, int64_t index) override {
      for (Observer* observer : list) observer->enter(ctx, name, index);
    }
    void leave(const Context& ctx) noexcept override {
      for (auto observer = list.rbegin(); observer != list.rend(); ++observer) (*observer)->leave(ctx);
    }
    std::vector<Observer*> list;
  };

  List first_, others_;
};

// Each scope as a range of NVTX.
class NvtxRanges final : public Observer {
 public:
  explicit NvtxRanges(Device device) : device_(device) {}
  void enter(const Context&, std::string_view name, int64_t index) override {
    std::string text(name);
    if (index >= 0) text += "." + std::to_string(index);
    push_range(device_, text.c_str());
  }
  void leave(const Context&) noexcept override { pop_range(device_); }
  Observer* beside() noexcept override { return this; }

 private:
  Device device_;
};

}  // namespace tigon
