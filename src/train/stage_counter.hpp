#pragma once

#include <string_view>
#include <vector>

#include "tigon/core/scope.hpp"
#include "tigon/model/block.hpp"

namespace tigon {

// How often each stage has run forward in training, first and again.
class StageCounter final : public Observer {
 public:
  void enter(const Context&, std::string_view name, int64_t) override {
    const bool counts = within("forward") || within("restore");
    for (size_t s = 0; counts && s < runs_.size(); ++s) runs_[s] += name == to_string(static_cast<StageId>(s));
    scopes_.push_back(name);
  }
  void leave(const Context&) noexcept override { scopes_.pop_back(); }

  const StageRuns& runs() const noexcept { return runs_; }

 private:
  bool within(std::string_view name) const {
    for (const std::string_view scope : scopes_) {
      if (scope == name) return true;
    }
    return false;
  }

  std::vector<std::string_view> scopes_;
  StageRuns runs_{};
};

}  // namespace tigon
