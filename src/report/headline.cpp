#include "report/headline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "report/words.hpp"

namespace tigon::report {

namespace {

// A point as far as sentences need it.
struct Point {
  std::string strategy;
  int64_t batch = 0, seq = 0;
  bool done = false;                                 // else out of memory
  double tokens_per_second = 0, slow = 0, fast = 0;  // the median, and the 20 % and 80 % quantiles
  int64_t bytes = 0;                                 // the device's peak: measured where it ran
};

int64_t whole(const Json* object, const char* key) {
  const Json* member = object == nullptr ? nullptr : object->find(key);
  return member == nullptr ? 0 : member->integer(key);
}

// Numbers from files may be as large as they fit.
int64_t product(int64_t a, int64_t b) {
  int64_t all = 0;
  return __builtin_mul_overflow(a, b, &all) ? std::numeric_limits<int64_t>::max() : all;
}
int64_t sum(int64_t a, int64_t b) {
  int64_t all = 0;
  return __builtin_add_overflow(a, b, &all) ? std::numeric_limits<int64_t>::max() : all;
}

// Nothing where it has no result.
std::optional<Point> read(const Json& json) {
  const std::string& status = json.find("status")->string("status");
  if (status != "done" && status != "out of memory") return std::nullopt;
  Point point{.strategy = json.find("strategy")->string("strategy"),
              .batch = product(whole(&json, "batch"), std::max<int64_t>(1, whole(&json, "accumulate"))),
              .seq = whole(&json, "seq"),
              .done = status == "done"};
  if (point.done) {
    const Json *measured = json.find("measured"), *speed = measured->find("tokens_per_second");
    point.tokens_per_second = speed->find("median")->number("median");
    point.slow = speed->find("q20")->number("q20");
    point.fast = speed->find("q80")->number("q80");
    point.bytes = sum(whole(json.find("planned"), "device"), whole(measured, "beyond_plan_bytes"));
  }
  return point;
}

std::string with_commas(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

class Headline {
 public:
  explicit Headline(const StudyFolder& study) : study_(study), cap_(whole(&study.study, "cap_bytes")) {
    for (const Json& json : study.points) {
      if (const std::optional<Point> point = read(json)) points_.push_back(*point);
    }
    for (const Json& strategy : study.study.find("strategies")->array("")) {
      const std::string& name = strategy.find("name")->string("name");
      const Json* title = strategy.find("title");
      strategies_.push_back(name);
      titles_[name] = title == nullptr || title->string("title").empty() ? name : title->string("title");
    }
  }

  std::vector<std::string> sentences() const {
    std::vector<std::string> all;
    for (const auto& sentence : {largest("batch", &Point::batch, &Point::seq), side_by_side(),
                                 largest("sequence", &Point::seq, &Point::batch), fastest(), fused_ops()}) {
      if (sentence) all.push_back(*sentence);
    }
    return all;
  }

 private:
  std::string title(const std::string& strategy) const { return "“" + titles_.at(strategy) + "”"; }

  // "Within 24 GiB, at 1024 tokens a sequence, “Fused” trains batches up to 16, “Unfused” up to 8." Of `size`, at the
  // `other` size at which strategies ran out of memory and differ the most; where none did, nothing is to say.
  std::optional<std::string> largest(const char* what, int64_t Point::*size, int64_t Point::*other) const {
    std::optional<std::string> sentence;
    double widest = 1;
    std::set<int64_t> others;
    for (const Point& point : points_) others.insert(point.*other);
    for (const int64_t fixed : others) {
      std::map<std::string, int64_t> most;  // by strategy; 0: not even the smallest
      std::set<int64_t> sizes;
      bool limited = false;
      for (const Point& point : points_) {
        if (point.*other != fixed) continue;
        limited = limited || !point.done;
        sizes.insert(point.*size);
        int64_t& largest = most[point.strategy];
        if (point.done) largest = std::max(largest, point.*size);
      }
      if (!limited || sizes.size() < 2 || most.size() < 2) continue;
      const std::string *best = nullptr, *worst = nullptr;
      for (const std::string& name : strategies_) {
        if (!most.contains(name)) continue;
        if (best == nullptr || most[name] > most[*best]) best = &name;
        if (worst == nullptr || most[name] < most[*worst]) worst = &name;
      }
      const double ratio = static_cast<double>(most[*best]) / std::max(0.5, static_cast<double>(most[*worst]));
      if (ratio <= widest) continue;
      widest = ratio;
      const bool batches = std::string_view(what) == "batch";
      const std::string at =
          batches ? fmt::format("at {} tokens a sequence", fixed) : fmt::format("at batch {}", fixed);
      const std::string less = most[*worst] == 0 ? fmt::format("{} not even {}", title(*worst), *sizes.begin())
                                                 : fmt::format("{} up to {}", title(*worst), most[*worst]);
      sentence = fmt::format("{}, {}, {} trains {} up to {}{}, {}.",
                             cap_ > 0 ? "Within " + bytes_text(cap_) : "On this machine", at, title(*best),
                             batches ? "batches" : "sequences", most[*best], batches ? "" : " tokens long", less);
    }
    return sentence;
  }

  // The one that takes the least memory beside the one that takes the most, at the largest size that both ran.
  std::optional<std::string> side_by_side() const {
    const auto [most, least] = telling_pair(study_, [](const Json& json) {
      const std::optional<Point> point = read(json);
      return point && point->done && point->bytes > 0 ? point->bytes : int64_t{-1};
    });
    if (most == least) return std::nullopt;
    const Point a = *read(*least), b = *read(*most);
    if (a.bytes == b.bytes) return std::nullopt;
    const double share = 100.0 * (1 - static_cast<double>(a.bytes) / static_cast<double>(b.bytes));
    const double speed = b.tokens_per_second > 0 ? a.tokens_per_second / b.tokens_per_second : 0;
    std::string sentence =
        fmt::format("At batch {} × {} tokens, {} takes {} where {} takes {}: {:.0f} % less", a.batch, a.seq,
                    title(a.strategy), bytes_text(a.bytes), title(b.strategy), bytes_text(b.bytes), share);
    const bool told_apart = a.slow > b.fast || b.slow > a.fast;
    if (speed > 1.02 && told_apart) {
      sentence += fmt::format(", and it is {:.2f} × as fast", speed);
    } else if (speed > 0.98 || (speed > 0 && !told_apart)) {
      sentence += ", and the two are equally fast within the spread of their steps";
    } else if (speed > 0) {
      sentence += fmt::format(", at {:.0f} % of its speed", 100 * speed);
    }
    return sentence + ".";
  }

  std::optional<std::string> fastest() const {
    const Point* best = nullptr;
    for (const Point& point : points_) {
      if (point.done && (best == nullptr || point.tokens_per_second > best->tokens_per_second)) best = &point;
    }
    if (best == nullptr) return std::nullopt;
    const Point* next = nullptr;  // of another strategy
    for (const Point& point : points_) {
      if (point.done && point.strategy != best->strategy && (next == nullptr || point.fast > next->fast)) next = &point;
    }
    const bool close = next != nullptr && next->fast >= best->slow;
    return fmt::format("The fastest point is {} at batch {} × {} tokens: {} tokens/s in {}{}.", title(best->strategy),
                       best->batch, best->seq, with_commas(best->tokens_per_second), bytes_text(best->bytes),
                       close ? fmt::format("; {} comes within its spread", title(next->strategy)) : "");
  }

  // How much faster ops are than the chain of steps that they stand for.
  std::optional<std::string> fused_ops() const {
    std::map<std::string, std::map<bool, double>> times;  // by op, shape and type; fused or not
    for (const Json& row : study_.kernels) {
      std::string name = row.find("op")->string("op");
      for (const char* key : {"shape", "dtype"}) name += " " + row.find(key)->string(key);
      times[name][row.find("provider")->string("provider") == "tigon"] = row.find("full_ms")->number("full_ms");
    }
    std::vector<std::pair<double, std::string>> ratios;
    for (const auto& [name, ms] : times) {
      if (ms.size() == 2 && ms.at(true) > 0) ratios.emplace_back(ms.at(false) / ms.at(true), name);
    }
    if (ratios.empty()) return std::nullopt;
    std::sort(ratios.begin(), ratios.end());
    const auto& [most, op] = ratios.back();
    if (ratios.size() == 1) return fmt::format("Fused, {} is {:.2f} × as fast.", op, most);
    return fmt::format("Fused, the middle one of {} ops is {:.2f} × as fast; {} gains the most: {:.2f} ×.",
                       ratios.size(), ratios[ratios.size() / 2].first, op, most);
  }

  const StudyFolder& study_;
  std::vector<Point> points_;
  std::vector<std::string> strategies_;
  std::map<std::string, std::string> titles_;
  int64_t cap_;
};

}  // namespace

std::vector<std::string> headline(const StudyFolder& study) { return Headline(study).sentences(); }

}  // namespace tigon::report
