#include "report/study_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "report/shape.hpp"
#include "report/timeline_check.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon::report {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestFile = int64_t{16} << 20;
constexpr int64_t kLargestTimeline = int64_t{32} << 20;
constexpr int64_t kMostTimelineBytes = int64_t{64} << 20;  // of all points; a page with more would open slowly
constexpr size_t kMostPoints = 10000;
constexpr size_t kMostStrategies = 256;
constexpr size_t kMostNotes = 40;
constexpr size_t kMostKernels = 1000;  // rows, each a bar

const Json& study_shape() {
  static const Json shape = Json::parse(R"({
    "format": "", "version": 0, "name?": "", "title?": "", "tigon?": "", "created?": "", "command?": "",
    "machine?": {"cpu?": "", "threads?": 0, "memory_bytes?": 0, "device?": "", "device_name?": "", "device_memory_bytes?": 0},
    "model?": {"name?": "", "parameters?": 0, "layers?": 0, "hidden?": 0, "vocab?": 0},
    "rates?": {"gemm_flops_per_second?": 0.5, "copy_bytes_per_second?": 0.5},
    "cap_bytes?": 0,
    "strategies": [{"name": "", "title?": "", "flags?": ""}],
    "points": [{"id": "", "strategy": "", "batch": 0, "accumulate?": 0, "seq": 0}]})",
                                        "the shape of study.json");
  return shape;
}

const Json& point_shape() {
  static const Json shape = Json::parse(R"({
    "format": "", "version": 0, "id": "", "strategy": "", "batch": 0, "accumulate?": 0, "seq": 0, "command?": "",
    "status": "", "proved?": true, "why?": "",
    "planned": {"device": 0, "pinned": 0, "host": 0, "disk": 0},
    "by_class?": {"*": 0},
    "alive_at_peak?": [{"name": "", "class": "", "bytes": 0, "count": 0}],
    "formulas?": {"static_bytes": 0, "static_mixed_16p": 0, "checkpoints": 0, "logits": 0, "chunk_logits": 0},
    "measured?": {"steps?": 0, "tokens?": 0,
      "seconds": {"median": 0.5, "q20": 0.5, "q80": 0.5},
      "tokens_per_second": {"median": 0.5, "q20": 0.5, "q80": 0.5},
      "used_bytes": 0, "beyond_plan_bytes?": 0, "process_peak_bytes?": 0, "loss?": 0.5, "gemm_share?": 0.5,
      "waits?": {"compute": 0.5, "copies": 0.5, "update": 0.5}}})",
                                        "the shape of point.json");
  return shape;
}

const Json& times_shape() {
  static const Json shape = Json::parse(R"({
    "format": "", "version": 0, "step?": 0, "seconds": 0.5,
    "rows": [{"phase": "", "name": "", "calls?": 0, "seconds": 0.5, "floor_seconds?": 0.5}]})",
                                        "the shape of times.json");
  return shape;
}

const Json& kernels_shape() {
  static const Json shape = Json::parse(R"([{
    "op": "", "shape": "", "dtype": "", "device?": "", "provider": "", "fwd_ms?": 0.5, "bwd_ms?": 0.5, "full_ms": 0.5,
    "q20_ms?": 0.5, "q80_ms?": 0.5, "peak_bytes?": 0, "floor_ms?": 0.5}])",
                                        "the shape of kernels.json");
  return shape;
}

void check_format(const Json& value, const char* format, const std::string& where) {
  const Json *name = value.find("format"), *version = value.find("version");
  if (name == nullptr || !name->is_string() || name->string(where) != format) {
    throw Error(ErrorCode::invalid_argument, {.where = where, .what = "this is another file", .expected = format});
  }
  if (version == nullptr || !version->is_integer() || version->integer(where) != 1) {
    throw Error(ErrorCode::unsupported, {.where = where,
                                         .what = "the format's version is not known here",
                                         .expected = "version 1",
                                         .fix = "Use the tigon that wrote it, or a newer one."});
  }
}

const std::string& text_of(const Json& object, const char* key) {
  static const std::string none;
  const Json* member = object.find(key);
  return member != nullptr && member->is_string() ? member->string(key) : none;
}

int64_t number_of(const Json& object, const char* key, int64_t otherwise = 0) {
  const Json* member = object.find(key);
  return member != nullptr && member->is_integer() ? member->integer(key) : otherwise;
}

// A point's name is the name of its folder: nothing that leads elsewhere.
bool usable_id(const std::string& id) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '+' || c == '=' || c == ',';
  };
  return !id.empty() && id.size() <= 200 && id[0] != '.' && std::all_of(id.begin(), id.end(), plain);
}

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(fs::symlink_status(path, none));
}

class Reader {
 public:
  explicit Reader(fs::path folder) : folder_(std::move(folder)) {}

  StudyFolder read() {
    const std::vector<std::string> found = folders_of_points();
    if (!is_there(folder_ / "study.json") && found.empty()) refuse();
    read_plan_of_study(found);
    for (const Json& wanted : wanted_) study_.points.push_back(read_point(wanted));
    if (!missing_.empty()) {
      note(
          fmt::format("{} of {} points {} not there: {}. An interrupted study goes on where it stopped when its "
                      "command is run again.",
                      missing_.size(), wanted_.size(), missing_.size() == 1 ? "is" : "are", some(missing_)));
    }
    if (!left_out_.empty()) {
      note(fmt::format("Memory over a step is left out of {} points, since the page would be too large: {}.",
                       left_out_.size(), some(left_out_)));
    }
    attempt("kernels.json", [this] {
      const Json rows = shaped(parse(folder_ / "kernels.json", kLargestFile), kernels_shape(), "kernels.json");
      if (rows.array("").size() > kMostKernels)
        throw Error(ErrorCode::invalid_argument, {.where = "kernels.json", .what = "there are too many rows"});
      study_.kernels = rows.array("");
    });
    if (study_.notes.size() > kMostNotes) {
      const size_t more = study_.notes.size() - kMostNotes;
      study_.notes.resize(kMostNotes);
      note(fmt::format("There are {} more such notes.", more));
    }
    return std::move(study_);
  }

 private:
  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::invalid_argument, {.where = folder_.string(),
                                              .what = "this is no study",
                                              .expected = "a folder with a study.json, as tigon study writes one",
                                              .got = is_there(folder_) ? "neither a study.json nor a point" : "nothing",
                                              .fix = "Make one:  tigon study --preset cpu --output FOLDER"});
  }

  void note(std::string text) { study_.notes.push_back(std::move(text)); }

  // What is not there is left out; what cannot be used is left out too, and said.
  bool attempt(const fs::path& file, const std::function<void()>& read) {
    if (!is_there(folder_ / file)) return false;
    try {
      read();
      return true;
    } catch (const Error& error) {
      note(fmt::format("{} is left out: {}", file.string(), error.what()));
    }
    return false;
  }

  static Json parse(const fs::path& path, int64_t limit) {
    return Json::parse(read_text_file(path, limit), path.filename().string());
  }

  static std::string some(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size() && i < 6; ++i) text += (i > 0 ? ", " : "") + names[i];
    return names.size() > 6 ? fmt::format("{} and {} more", text, names.size() - 6) : text;
  }

  std::vector<std::string> folders_of_points() const {
    std::vector<std::string> names;
    std::error_code none;
    for (fs::directory_iterator entry(folder_ / "points", none), end;
         !none && entry != end && names.size() < kMostPoints; entry.increment(none)) {
      const std::string name = entry->path().filename().string();
      if (usable_id(name) && is_there(entry->path() / "point.json")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // study.json, or as much as the points alone say.
  void read_plan_of_study(const std::vector<std::string>& found) {
    const bool have = attempt("study.json", [this] {
      const Json value = parse(folder_ / "study.json", kLargestFile);
      check_format(value, "tigon-study", "study.json");
      const Json study = shaped(value, study_shape(), "study.json");
      if (study.find("strategies")->array("").size() > kMostStrategies) {
        throw Error(ErrorCode::invalid_argument, {.where = "study.json", .what = "there are too many strategies"});
      }
      study_.study = study;
    });
    std::set<std::string> ids;
    if (have) {
      for (const Json& wanted : study_.study.find("points")->array("")) {
        const std::string& id = text_of(wanted, "id");
        if (!usable_id(id) || !ids.insert(id).second || wanted_.size() == kMostPoints) {
          note(fmt::format("study.json: the point '{}' is left out: its name {}.", id.substr(0, 80),
                           wanted_.size() == kMostPoints ? "comes after too many others"
                           : usable_id(id)               ? "stands twice"
                                                         : "is no name of a folder"));
        } else {
          wanted_.push_back(wanted);
        }
      }
    } else {
      if (!is_there(folder_ / "study.json"))
        note("study.json is not there, so the page shows the points as it finds them.");
      if (found.empty()) refuse_broken();
    }
    for (const std::string& id : found) {
      if (!ids.insert(id).second) continue;
      if (have) note(fmt::format("The point '{}' is not in study.json, and stands at the end.", id));
      wanted_.push_back(Json::Object{{"id", id}});
    }
    study_.study.set("points", Json());
    if (!have) study_.study.set("strategies", Json::Array());
  }

  [[noreturn]] void refuse_broken() const {
    throw Error(ErrorCode::invalid_argument,
                {.where = folder_.string(), .what = "this study cannot be read: " + study_.notes.back()});
  }

  Json read_point(const Json& wanted) {
    const std::string id = text_of(wanted, "id");
    const fs::path folder = fs::path("points") / id;
    Json point = wanted;
    point.set("status", "missing");
    if (!is_there(folder_ / folder / "point.json")) {
      missing_.push_back(id);
      return point;
    }
    if (!attempt(folder / "point.json", [&] { point = checked_point(folder_ / folder / "point.json", wanted); })) {
      return point;
    }
    name_strategy(text_of(point, "strategy"));
    attempt(folder / "memory.json", [&] {
      const fs::path path = folder_ / folder / "memory.json";
      const std::string text = read_text_file(path, kLargestTimeline);
      if (timeline_bytes_ + static_cast<int64_t>(text.size()) > kMostTimelineBytes) {
        left_out_.push_back(id);
        return;
      }
      point.set("memory", checked_timeline(Json::parse(text, "memory.json"), "memory.json"));
      timeline_bytes_ += static_cast<int64_t>(text.size());
    });
    attempt(folder / "times.json", [&] {
      const Json value = parse(folder_ / folder / "times.json", kLargestFile);
      check_format(value, "tigon-times", "times.json");
      point.set("times", shaped(value, times_shape(), "times.json"));
    });
    Json::Array files;
    for (const char* name : {"log.jsonl", "memory.pickle", "trace.pt.trace.json.gz"}) {
      if (is_there(folder_ / folder / name)) files.emplace_back((folder / name).generic_string());
    }
    point.set("files", std::move(files));
    return point;
  }

  static Json checked_point(const fs::path& path, const Json& wanted) {
    const Json value = parse(path, kLargestFile);
    check_format(value, "tigon-study-point", "point.json");
    Json point = shaped(value, point_shape(), "point.json");
    for (const char* key : {"id", "strategy"}) {
      if (wanted.find(key) != nullptr && text_of(wanted, key) != text_of(point, key)) differs(key);
    }
    for (const char* key : {"batch", "accumulate", "seq"}) {
      if (wanted.find(key) != nullptr && number_of(wanted, key) != number_of(point, key, 1)) differs(key);
    }
    const std::string& status = text_of(point, "status");
    if (status != "done" && status != "out of memory" && status != "failed") {
      throw Error(ErrorCode::invalid_argument, {.where = "point.json, 'status'",
                                                .what = "the word is not known",
                                                .expected = "done, out of memory or failed",
                                                .got = status.substr(0, 80)});
    }
    if (status == "done" && point.find("measured") == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "point.json", .what = "it is done, but 'measured' is missing"});
    }
    return point;
  }

  [[noreturn]] static void differs(const char* key) {
    throw Error(ErrorCode::invalid_argument,
                {.where = fmt::format("point.json, '{}'", key), .what = "it is another point than its folder's"});
  }

  // Every strategy of a point is one of the study's list.
  void name_strategy(const std::string& name) {
    const Json::Array& known = study_.study.find("strategies")->array("");
    for (const Json& strategy : known) {
      if (text_of(strategy, "name") == name) return;
    }
    Json::Array strategies = known;
    strategies.emplace_back(Json::Object{{"name", name}, {"title", name}});
    study_.study.set("strategies", std::move(strategies));
  }

  fs::path folder_;
  StudyFolder study_;
  Json::Array wanted_;
  std::vector<std::string> missing_, left_out_;
  int64_t timeline_bytes_ = 0;
};

}  // namespace

StudyFolder read_study(const fs::path& folder) { return Reader(folder).read(); }

namespace {

// The flags of a strategy but for what is fused.
std::string flags_without_fused(const Json& study, const std::string& name) {
  for (const Json& strategy : study.find("strategies")->array("")) {
    if (text_of(strategy, "name") != name) continue;
    std::istringstream words(text_of(strategy, "flags"));
    std::string flags;
    for (std::string word; words >> word;) {
      if (word == "--fused") {
        words >> word;
      } else if (!word.starts_with("--fused=")) {
        flags += " " + word;
      }
    }
    return flags;
  }
  return "";
}

}  // namespace

std::pair<const Json*, const Json*> telling_pair(const StudyFolder& study,
                                                 const std::function<int64_t(const Json& point)>& bytes) {
  using Pair = std::pair<const Json*, const Json*>;
  Pair best{};
  // First among strategies that differ in nothing but what is fused, then among all.
  for (const bool same_flags : {true, false}) {
    std::map<std::tuple<double, int64_t, std::string>, Pair> groups;  // by tokens, sequence and flags
    for (const Json& point : study.points) {
      if (bytes(point) < 0) continue;
      const int64_t seq = number_of(point, "seq");
      const double batch = static_cast<double>(number_of(point, "batch")) * number_of(point, "accumulate", 1);
      const std::string flags = same_flags ? flags_without_fused(study.study, text_of(point, "strategy")) : "";
      auto& [most, least] = groups[{batch * static_cast<double>(seq), seq, flags}];
      if (most == nullptr || bytes(point) > bytes(*most)) most = &point;
      if (least == nullptr || bytes(point) < bytes(*least)) least = &point;
    }
    for (const auto& [key, pair] : groups) {
      if (pair.first != pair.second || best.first == best.second) best = pair;
    }
    if (best.first != best.second) break;
  }
  return best;
}

}  // namespace tigon::report
