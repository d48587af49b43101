#include "tigon/trace/step_times.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "tigon/trace/memory_timeline.hpp"

namespace tigon {

namespace {

using Key = std::pair<std::string, std::string>;  // phase and name

// Scopes that only stand around what takes time.
bool is_container(std::string_view name) {
  constexpr std::array kContainers = {"forward", "layers", "restore", "backward"};
  return std::find(kContainers.begin(), kContainers.end(), name) != kContainers.end();
}

class Sums {
 public:
  explicit Sums(const Recording& r) : r_(r) {
    for (int32_t s = 0; s < static_cast<int32_t>(r.scopes.size()); ++s) {
      const RecordedScope& scope = r.scopes[static_cast<size_t>(s)];
      if (r.name(scope.name) == kStepScope && scope.index == r.first_step) step_ = s;
    }
  }

  StepTimes take() {
    if (step_ < 0) return {.step = r_.first_step};
    const RecordedScope& step = r_.scopes[static_cast<size_t>(step_)];
    int64_t begin = step.begin, end = step.end < 0 ? step.begin : step.end;
    const bool seen = std::any_of(r_.activities.begin(), r_.activities.end(), on_device);
    for (int32_t s = 0; s < static_cast<int32_t>(r_.scopes.size()); ++s) {
      const std::optional<Key> key = key_of(s);
      if (!key) continue;
      auto& [calls, time] = sums_[*key];
      ++calls;
      const RecordedScope& scope = r_.scopes[static_cast<size_t>(s)];
      if (!seen && scope.end >= 0) time += scope.end - scope.begin;
    }
    if (seen) std::tie(begin, end) = add_activities();
    StepTimes times{.step = r_.first_step, .seconds = static_cast<double>(end - begin) * 1e-9};
    int64_t rest = end - begin;
    for (const auto& [key, sum] : sums_) {
      times.rows.push_back({key.first, key.second, sum.first, static_cast<double>(sum.second) * 1e-9});
      rest -= sum.second;
    }
    times.rows.push_back({"other", "between", 1, static_cast<double>(std::max<int64_t>(0, rest)) * 1e-9});
    std::stable_sort(times.rows.begin(), times.rows.end(),
                     [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    return times;
  }

 private:
  static bool on_device(const DeviceActivity& a) { return a.kind != DeviceActivity::Kind::call; }

  // Of a scope that stands right within containers of the step; nothing for any other.
  std::optional<Key> key_of(int32_t s) const {
    const RecordedScope& scope = r_.scopes[static_cast<size_t>(s)];
    std::string name = r_.name(scope.name);
    if (scope.thread != 0 || is_container(name) || s == step_) return {};
    std::string_view phase = phase_of_scope(name);
    for (int32_t p = scope.parent; p != step_; p = r_.scopes[static_cast<size_t>(p)].parent) {
      if (p < 0) return {};
      const std::string_view around = r_.name(r_.scopes[static_cast<size_t>(p)].name);
      if (!is_container(around)) return {};
      if (around == "restore") phase = "recompute";
      if (phase != "recompute") phase = phase_of_scope(around).empty() ? around : phase_of_scope(around);
    }
    if (name == "embed backward") name = "embed";
    return Key{phase.empty() ? "other" : phase, name};
  }

  // What the device ran goes to the row of the scope that asked for it; returns when it began and ended.
  std::pair<int64_t, int64_t> add_activities() {
    int64_t begin = -1, end = -1;
    for (const DeviceActivity& a : r_.activities) {
      if (!on_device(a) || a.scope < 0 || a.scope >= static_cast<int64_t>(r_.scopes.size())) continue;
      for (auto s = static_cast<int32_t>(a.scope); s >= 0; s = r_.scopes[static_cast<size_t>(s)].parent) {
        const std::optional<Key> key = key_of(s);
        if (!key) continue;
        sums_[*key].second += a.end - a.begin;
        begin = begin < 0 ? a.begin : std::min(begin, a.begin);
        end = std::max(end, a.end);
        break;
      }
    }
    return {begin, end};
  }

  const Recording& r_;
  int32_t step_ = -1;
  std::map<Key, std::pair<int64_t, int64_t>> sums_;  // calls and nanoseconds
};

}  // namespace

StepTimes step_times(const Recording& recording) { return Sums(recording).take(); }

}  // namespace tigon
