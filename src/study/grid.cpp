// What a study asks: its points, and the words of each.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "study/words.hpp"
#include "tigon/core/error.hpp"
#include "tigon/study/study.hpp"

namespace tigon {

namespace {

constexpr int64_t kMostPoints = 10000;

[[noreturn]] void refuse(const Study& study, std::string what, std::string fix = {}) {
  throw Error(ErrorCode::invalid_argument,
              {.where = "study " + study.name, .what = std::move(what), .fix = std::move(fix)});
}

// A name is a part of file names and of tables.
bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && name[0] != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
             std::string::npos;
}

// What the study gives each point itself must not be among the flags: it would be given up without a word.
void check_flags(const Study& study, const std::string& flags, const std::string& where) {
  static const std::set<std::string> kOwn = {"--batch", "--seq", "--accumulate", "--steps",
                                             "--cap",   "--log", "--record",     "--trace-steps"};
  for (const std::string& word : words_of(flags, where)) {
    if (!kOwn.contains(word.substr(0, word.find('=')))) continue;
    refuse(study, fmt::format("{} stands in the {}", word, where),
           "Say it to the study: batches, seqs, accumulate, steps or cap.");
  }
}

void check(const Study& study) {
  if (study.strategies.empty() && study.kernels.empty()) refuse(study, "it has no strategies and no kernels");
  if (!study.strategies.empty() && study.sweeps.empty()) refuse(study, "it has no batches and no sequences");
  check_flags(study, study.flags, "flags");
  std::set<std::string> names;
  for (const Strategy& strategy : study.strategies) {
    check_flags(study, strategy.flags, "flags of " + strategy.name);
    if (!is_name(strategy.name)) {
      refuse(study, "'" + strategy.name + "' is no name for a strategy",
             "Take up to 64 letters, digits, _ and -, and begin with no -.");
    }
    if (!names.insert(strategy.name).second) refuse(study, "two strategies are called " + strategy.name);
  }
  for (const Sweep& sweep : study.sweeps) {
    if (sweep.batches.empty() || sweep.seqs.empty()) refuse(study, "a sweep lacks batches or sequences");
    for (const std::string& name : sweep.strategies) {
      if (!names.contains(name)) refuse(study, "a sweep is of the strategy " + name + ", which there is not");
    }
  }
}

}  // namespace

std::vector<StudyPoint> study_points(const Study& study) {
  check(study);
  std::vector<StudyPoint> points;
  std::set<std::string> seen;
  for (const Sweep& sweep : study.sweeps) {
    for (const int64_t seq : sweep.seqs) {
      for (const int64_t batch : sweep.batches) {
        for (const Strategy& strategy : study.strategies) {
          const auto& of = sweep.strategies;
          if (!of.empty() && std::find(of.begin(), of.end(), strategy.name) == of.end()) continue;
          StudyPoint point{.strategy = strategy.name, .batch = batch, .accumulate = sweep.accumulate, .seq = seq};
          point.id = strategy.name + "-b" + std::to_string(batch) + "-s" + std::to_string(seq);
          if (sweep.accumulate > 1) point.id += "-a" + std::to_string(sweep.accumulate);
          if (!seen.insert(point.id).second) continue;
          points.push_back(std::move(point));
          if (static_cast<int64_t>(points.size()) > kMostPoints)
            refuse(study, "it has more than " + std::to_string(kMostPoints) + " points");
        }
      }
    }
  }
  return points;
}

std::vector<std::string> point_words(const Study& study, const StudyPoint& point) {
  std::vector<std::string> words = {"train", "--model", study.model};
  const auto add = [&](const std::string& text, const std::string& where) {
    for (std::string& word : words_of(text, where)) words.push_back(std::move(word));
  };
  add(study.flags, "flags");
  for (const Strategy& strategy : study.strategies) {
    if (strategy.name == point.strategy) add(strategy.flags, "flags of " + strategy.name);
  }
  for (const auto& [flag, value] :
       {std::pair{"--batch", point.batch}, {"--seq", point.seq}, {"--accumulate", point.accumulate}}) {
    words.emplace_back(flag);
    words.push_back(std::to_string(value));
  }
  return words;
}

}  // namespace tigon
