// The loop over a study's points: plan, run in a process of its own, keep what came of it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <optional>

#include "study/machine.hpp"
#include "study/process.hpp"
#include "study/result.hpp"
#include "study/words.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/version.hpp"
#include "tigon/model/parameters.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/study/study.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kOutOfMemory = 3;  // as a program of ours ends then
constexpr const char* kStudyFile = "study.json";

// The study that is in a folder already, as study.json has it, or null where the folder is empty. Error where it has
// other things in it, which are somebody's work.
Json study_in(const fs::path& folder) {
  constexpr int64_t kLargest = int64_t{1} << 24;
  make_folder(folder);
  const fs::path file = folder / kStudyFile;
  const auto refuse = [](const fs::path& where, const char* what) {
    throw Error(
        ErrorCode::invalid_argument,
        {.where = where.string(), .what = what, .fix = "Choose another folder, which need not exist: --output FOLDER"});
  };
  if (fs::exists(file)) {
    Json study = Json::parse(read_text_file(file, kLargest), file.string());
    const Json* format = study.find("format");
    if (format == nullptr || !format->is_string() || format->string("") != "tigon-study")
      refuse(file, "this is no file of tigon study");
    return study;
  }
  // One that was killed as it began has left half of that file.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != std::string(kStudyFile) + ".tmp")
      refuse(folder, "this folder has something in it, and no study");
  }
  return {};
}

// The last line in which a program of ours says what went wrong, or what it said last.
std::string last_words(const fs::path& output) {
  std::ifstream file(output);
  std::string last, error;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
    if (line.starts_with("tigon: ")) error = line.substr(7);
  }
  return error.empty() ? last : error;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  (void)gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

class Runner {
 public:
  Runner(const Study& study, const StudyOptions& options, StudyObserver& observer, const std::atomic<bool>& stop)
      : study_(study),
        options_(options),
        observer_(observer),
        stop_(stop),
        program_(options.program.empty() ? this_program() : options.program),
        machine_(machine_json(options.device)),
        points_(study_points(study)) {}

  StudyOutcome run() {
    const Json before = study_in(options_.folder);
    const FolderLock lock(options_.folder);
    for (const StudyPoint& point : points_) planned_.push_back(options_.plan(words(point)));
    forget_other_kernels(before);
    write_study();
    outcome_.points = static_cast<int64_t>(points_.size());
    find_kept(before);
    if (!study_.kernels.empty() && !stop_) run_kernels();
    for (size_t p = 0; p < points_.size() && !outcome_.stopped; ++p) {
      if (stop_) {
        outcome_.stopped = true;
      } else if (!results_[p]) {
        run_point(p);
      }
    }
    write_results();
    count();
    return outcome_;
  }

 private:
  int64_t steps() const { return study_.warmup + study_.steps + 1; }  // the last one is recorded

  // What stands for the point, and runs it alone.
  std::vector<std::string> words(const StudyPoint& point) const {
    std::vector<std::string> list = point_words(study_, point);
    list.insert(list.end(), {"--steps", std::to_string(steps())});
    if (study_.cap_bytes > 0) list.insert(list.end(), {"--cap", std::to_string(study_.cap_bytes)});
    return list;
  }
  std::string command(const StudyPoint& point) const {
    std::vector<std::string> list = words(point);
    list.insert(list.begin(), "tigon");
    return command_text(list);
  }
  fs::path folder(const StudyPoint& point) const { return options_.folder / "points" / point.id; }

  void write_study() const {
    Json json;
    json.set("format", "tigon-study");
    json.set("version", 1);
    json.set("name", study_.name);
    json.set("title", study_.title);
    json.set("tigon", std::string(version()));
    json.set("created", today());
    json.set("command", options_.command);
    json.set("machine", machine_);
    if (!planned_.empty()) json.set("model", model_json());
    Json rates;
    if (options_.rates.gemm > 0) rates.set("gemm_flops_per_second", options_.rates.gemm);
    if (options_.rates.copy > 0) rates.set("copy_bytes_per_second", options_.rates.copy);
    json.set("rates", std::move(rates));
    json.set("cap_bytes", study_.cap_bytes);
    json.set("warmup", study_.warmup);
    json.set("steps", study_.steps);
    json.set("kernels", study_.kernels);
    Json::Array strategies;
    for (const Strategy& strategy : study_.strategies) {
      Json item;
      item.set("name", strategy.name);
      item.set("title", strategy.title);
      item.set("flags", strategy.flags);
      strategies.push_back(std::move(item));
    }
    json.set("strategies", std::move(strategies));
    Json::Array points;
    for (const StudyPoint& point : points_) {
      Json item;
      item.set("id", point.id);
      item.set("strategy", point.strategy);
      item.set("batch", point.batch);
      item.set("accumulate", point.accumulate);
      item.set("seq", point.seq);
      points.push_back(std::move(item));
    }
    json.set("points", std::move(points));
    write_text_file(options_.folder / kStudyFile, json.dump());
  }

  Json model_json() const {
    const ModelConfig& model = planned_.front().model;
    Json json;
    json.set("name", study_.model);
    json.set("parameters", planned_.front().parameters);
    json.set("layers", model.layers);
    json.set("hidden", model.hidden);
    json.set("vocab", model.vocab);
    return json;
  }

  void find_kept(const Json& before) {
    int64_t others = 0;
    for (const StudyPoint& point : points_) {
      const fs::path file = folder(point) / "point.json";
      std::optional<PointResult> kept = kept_result(file, point, command(point));
      // Only what ran proves that there is no room.
      if (kept && options_.prove && !kept->proved) kept.reset();
      outcome_.kept += kept ? 1 : 0;
      others += !kept && fs::exists(file) ? 1 : 0;
      results_.push_back(std::move(kept));
    }
    const std::string where = options_.folder.string();
    if (outcome_.kept > 0) {
      observer_.on_message(fmt::format("{} of {} points are in {} already", outcome_.kept, points_.size(), where));
      const Json* machine = before.find("machine");
      if (machine != nullptr && machine->dump() != machine_.dump())
        observer_.on_message("note: they were measured on another machine, or on another device of this one");
    }
    if (others > 0) {
      observer_.on_message(
          fmt::format("{} in {} failed, or had other flags, steps or another cap: measured again", others, where));
    }
  }

  void run_point(size_t p) {
    const StudyPoint& point = points_[p];
    const PlannedPoint& planned = planned_[p];
    PointResult result{.point = point, .command = command(point)};
    result.planned = planned.plan.bytes();
    const fs::path at = folder(point);
    fs::remove_all(at);
    make_folder(at);
    const int64_t over = study_.cap_bytes > 0 ? result.planned.device - study_.cap_bytes : 0;
    if (over > 0 && !options_.prove) {
      result.status = PointStatus::out_of_memory;
      result.why =
          fmt::format("its plan is {}, {} more than the cap", human_bytes(result.planned.device), human_bytes(over));
    } else {
      say_begin(p);
      const Clock::time_point begin = Clock::now();
      run_and_read(point, at, result);
      if (outcome_.stopped) return;
      if (result.status == PointStatus::done) {
        seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
        flops_ += planned.flops;
        ++timed_;
      }
    }
    write_text_file(at / "point.json", point_json(result, planned).dump());
    observer_.on_point(result);
    results_[p] = std::move(result);
    write_results();
  }

  void run_and_read(const StudyPoint& point, const fs::path& at, PointResult& result) {
    std::vector<std::string> list = words(point);
    const std::string last = std::to_string(steps());
    list.insert(list.end(), {"--log", (at / "log.jsonl").string(), "--record", at.string(), "--trace-steps", last});
    const Ended ended = run_program(program_, list, at / "output.txt", stop_);
    if (ended.stopped) {
      outcome_.stopped = true;
      return;
    }
    result.proved = true;
    const std::string said = last_words(at / "output.txt");
    if (ended.code == 0) {
      try {
        read_measured(at / "log.jsonl", study_, result);
        set_floors(at / "times.json", options_.rates);
        result.status = PointStatus::done;
      } catch (const Error& error) {
        result.why = error.what();
      }
    } else if (ended.code == kOutOfMemory) {
      result.status = PointStatus::out_of_memory;
      result.why = said;
    } else if (ended.signal == SIGKILL) {
      result.status = PointStatus::out_of_memory;
      result.why = "the system killed it, as it does where memory runs out";
    } else {
      result.why = ended.signal != 0 ? fmt::format("it ended by signal {}: {}", ended.signal, said) : said;
    }
  }

  fs::path kernels_file() const { return options_.folder / "kernels.json"; }

  void forget_other_kernels(const Json& before) const {
    const Json* flags = before.find("kernels");
    if (flags != nullptr && flags->dump() != Json(study_.kernels).dump()) fs::remove(kernels_file());
  }

  // Rows appear one by one; half of them must not pass for all.
  void run_kernels() {
    const fs::path partial = options_.folder / "kernels.part.json";
    if (fs::exists(kernels_file())) return;
    observer_.on_begin(0, outcome_.points, "kernels", -1);
    std::vector<std::string> list = {"bench", "ops", "--json", partial.string()};
    for (std::string& word : words_of(study_.kernels, "kernels")) list.push_back(std::move(word));
    const Ended ended = run_program(program_, list, options_.folder / "kernels.txt", stop_);
    if (ended.stopped) {
      outcome_.stopped = true;
    } else if (ended.code == 0) {
      fs::rename(partial, kernels_file());
    } else {
      outcome_.kernels_failed = true;
      observer_.on_message("kernels are missing: " + last_words(options_.folder / "kernels.txt"));
    }
  }

  void say_begin(size_t p) {
    double left = 0;
    for (size_t other = p; other < points_.size(); ++other) {
      if (results_[other]) continue;
      const int64_t bytes = planned_[other].plan.total_bytes();
      if (study_.cap_bytes == 0 || options_.prove || bytes <= study_.cap_bytes) left += planned_[other].flops;
    }
    observer_.on_begin(static_cast<int64_t>(p), outcome_.points, points_[p].id,
                       timed_ > 0 ? left * seconds_ / flops_ : -1);
  }

  void write_results() const {
    std::vector<PointResult> list;
    for (const std::optional<PointResult>& result : results_) {
      if (result) list.push_back(*result);
    }
    write_text_file(options_.folder / "results.csv", results_csv(study_, list));
    write_text_file(options_.folder / "results.json", results_json(study_, list).dump());
  }

  void count() {
    const PointResult* smallest = nullptr;
    for (const std::optional<PointResult>& r : results_) {
      if (!r) continue;
      outcome_.done += r->status == PointStatus::done ? 1 : 0;
      outcome_.out_of_memory += r->status == PointStatus::out_of_memory ? 1 : 0;
      outcome_.failed += r->status == PointStatus::failed ? 1 : 0;
      if (smallest == nullptr || r->planned.device < smallest->planned.device) smallest = &*r;
    }
    if (outcome_.done == 0 && outcome_.out_of_memory > 0) outcome_.smallest_plan = smallest->planned.device;
  }

  const Study& study_;
  const StudyOptions& options_;
  StudyObserver& observer_;
  const std::atomic<bool>& stop_;
  fs::path program_;
  Json machine_;
  std::vector<StudyPoint> points_;
  std::vector<PlannedPoint> planned_;
  std::vector<std::optional<PointResult>> results_;
  StudyOutcome outcome_;
  // Of what ran: the time that it took, and the FLOPs of a step, by which the others' time is guessed.
  double seconds_ = 0, flops_ = 0;
  int64_t timed_ = 0;
};

}  // namespace

StudyOutcome run_study(const Study& study, const StudyOptions& options, StudyObserver& observer,
                       const std::atomic<bool>& stop) {
  return Runner(study, options, observer, stop).run();
}

}  // namespace tigon
