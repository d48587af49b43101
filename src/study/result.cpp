#include "study/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestFile = int64_t{1} << 26;

const char* status_text(PointStatus status) {
  switch (status) {
    case PointStatus::done: return "done";
    case PointStatus::out_of_memory: return "out of memory";
    default: return "failed";
  }
}

Json json_of(const Quantiles& q) {
  Json json;
  json.set("median", q.median);
  json.set("q20", q.q20);
  json.set("q80", q.q80);
  return json;
}

// Members that a file must have; `where` names it.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}
  const Json& at(std::string_view key) const {
    const Json* found = json_.find(key);
    if (found != nullptr) return *found;
    throw Error(ErrorCode::invalid_argument, {.where = where_, .what = "'" + std::string(key) + "' is missing"});
  }
  int64_t integer(std::string_view key) const { return at(key).integer(where_); }
  double number(std::string_view key) const { return at(key).number(where_); }
  std::string string(std::string_view key) const { return at(key).string(where_); }
  Fields inside(std::string_view key) const { return {at(key), where_}; }
  bool has(std::string_view key) const { return json_.find(key) != nullptr; }
  double number_or(std::string_view key, double otherwise) const { return has(key) ? number(key) : otherwise; }

 private:
  const Json& json_;
  std::string where_;
};

Quantiles quantiles_of(const Fields& fields) {
  return {.median = fields.number("median"), .q20 = fields.number("q20"), .q80 = fields.number("q80")};
}

Json measured_json(const PointResult& r) {
  Json json;
  json.set("steps", r.steps);
  json.set("tokens", r.tokens);
  json.set("seconds", json_of(r.seconds));
  json.set("tokens_per_second", json_of(r.tokens_per_second));
  json.set("used_bytes", r.used_bytes);
  json.set("beyond_plan_bytes", r.beyond_plan_bytes);
  json.set("process_peak_bytes", r.process_peak_bytes);
  json.set("loss", r.loss);
  json.set("gemm_share", r.gemm_share);
  if (!r.waits) return json;
  Json waits;
  waits.set("compute", r.compute_share);
  waits.set("copies", r.copies_share);
  waits.set("update", r.updates_share);
  json.set("waits", std::move(waits));
  return json;
}

Json space_json(const SpaceBytes& bytes) {
  Json json;
  json.set("device", bytes.device);
  json.set("pinned", bytes.pinned);
  json.set("host", bytes.host);
  json.set("disk", bytes.disk);
  return json;
}

const Strategy& strategy_of(const Study& study, const StudyPoint& point) {
  return *std::find_if(study.strategies.begin(), study.strategies.end(),
                       [&](const Strategy& s) { return s.name == point.strategy; });
}

// A field of CSV.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string all = "\"";
  for (const char c : text) all += c == '"' ? std::string("\"\"") : std::string(1, c);
  return all + "\"";
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  // Between the two that are nearest.
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1), low = std::floor(place);
    const auto i = static_cast<size_t>(low);
    if (i + 1 == values.size()) return values[i];
    return values[i] + (place - low) * (values[i + 1] - values[i]);
  };
  return {.median = at(0.5), .q20 = at(0.2), .q80 = at(0.8)};
}

void read_measured(const fs::path& log, const Study& study, PointResult& result) {
  std::ifstream file = open_to_read(log);
  std::vector<double> seconds, speeds, gemm, compute, copies, updates;
  bool ended = false;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, log.string());
    const Fields fields(json, log.string());
    if (fields.has("end")) {
      ended = true;
      result.used_bytes = fields.integer("used_bytes");
      result.beyond_plan_bytes = fields.has("beyond_plan_bytes") ? fields.integer("beyond_plan_bytes") : 0;
      result.process_peak_bytes = fields.integer("process_peak_bytes");
      continue;
    }
    const int64_t step = fields.integer("step");
    if (step <= study.warmup || step > study.warmup + study.steps) continue;
    seconds.push_back(fields.number("seconds"));
    speeds.push_back(fields.number("tokens_per_second"));
    result.tokens = fields.integer("tokens");
    result.loss = fields.number("loss");
    gemm.push_back(fields.number_or("gemm_share", 0));
    if (!fields.has("compute_share")) continue;
    result.waits = true;
    compute.push_back(fields.number("compute_share"));
    copies.push_back(fields.number("copies_share"));
    updates.push_back(fields.number("updates_share"));
  }
  if (!ended || static_cast<int64_t>(seconds.size()) != study.steps) {
    throw Error(ErrorCode::io, {.where = log.string(),
                                .what = "the log is not that of a whole run",
                                .expected = fmt::format("{} measured steps and the line of the end", study.steps),
                                .got = fmt::format("{}{}", seconds.size(), ended ? "" : ", without the end")});
  }
  result.steps = study.steps;
  result.seconds = quantiles(std::move(seconds));
  result.tokens_per_second = quantiles(std::move(speeds));
  result.gemm_share = quantiles(std::move(gemm)).median;
  result.compute_share = quantiles(std::move(compute)).median;
  result.copies_share = quantiles(std::move(copies)).median;
  result.updates_share = quantiles(std::move(updates)).median;
}

Json point_json(const PointResult& r, const PlannedPoint& planned) {
  Json json;
  json.set("format", "tigon-study-point");
  json.set("version", 1);
  json.set("id", r.point.id);
  json.set("strategy", r.point.strategy);
  json.set("batch", r.point.batch);
  json.set("accumulate", r.point.accumulate);
  json.set("seq", r.point.seq);
  json.set("command", r.command);
  json.set("status", status_text(r.status));
  json.set("proved", r.proved);
  json.set("why", r.why);
  json.set("planned", space_json(r.planned));
  Json classes;
  int64_t sum = 0;
  const auto by_class = planned.plan.peak_by_class();
  for (int c = 0; c < kMemoryClassCount; ++c) {
    const int64_t bytes = by_class[static_cast<size_t>(c)];
    sum += bytes;
    classes.set(to_string(static_cast<MemoryClass>(c)), bytes);
  }
  classes.set("packing", r.planned.device - sum);
  json.set("by_class", std::move(classes));
  Json::Array alive;
  for (const MemoryPlan::PeakRow& row : planned.plan.alive_at_peak()) {
    Json item;
    item.set("name", row.name);
    item.set("class", std::string(to_string(row.memory_class)));
    item.set("bytes", row.bytes);
    item.set("count", row.count);
    alive.push_back(std::move(item));
  }
  json.set("alive_at_peak", std::move(alive));
  Json formulas;
  formulas.set("static_bytes", planned.formulas.static_bytes);
  formulas.set("static_mixed_16p", planned.formulas.static_mixed_16p);
  formulas.set("checkpoints", planned.formulas.checkpoints);
  formulas.set("logits", planned.formulas.logits);
  formulas.set("chunk_logits", planned.formulas.chunk_logits);
  json.set("formulas", std::move(formulas));
  if (r.status == PointStatus::done) json.set("measured", measured_json(r));
  return json;
}

std::optional<PointResult> kept_result(const fs::path& file, const StudyPoint& point, const std::string& command) try {
  if (!fs::exists(file)) return {};
  const std::string where = file.string();
  const Json json = Json::parse(read_text_file(file, kLargestFile), where);
  const Fields fields(json, where);
  PointResult r{.point = point, .command = command};
  if (fields.string("format") != "tigon-study-point" || fields.integer("version") != 1 ||
      fields.string("command") != command || fields.string("id") != point.id)
    return {};
  const std::string status = fields.string("status");
  if (status != "done" && status != "out of memory") return {};  // what failed is tried again
  r.status = status == "done" ? PointStatus::done : PointStatus::out_of_memory;
  r.proved = fields.at("proved").boolean(where);
  r.why = fields.string("why");
  const Fields planned = fields.inside("planned");
  r.planned = {.device = planned.integer("device"),
               .pinned = planned.integer("pinned"),
               .host = planned.integer("host"),
               .disk = planned.integer("disk")};
  if (r.status != PointStatus::done) return r;
  const Fields m = fields.inside("measured");
  r.steps = m.integer("steps");
  r.tokens = m.integer("tokens");
  r.seconds = quantiles_of(m.inside("seconds"));
  r.tokens_per_second = quantiles_of(m.inside("tokens_per_second"));
  r.used_bytes = m.integer("used_bytes");
  r.beyond_plan_bytes = m.integer("beyond_plan_bytes");
  r.process_peak_bytes = m.integer("process_peak_bytes");
  r.loss = m.number("loss");
  r.gemm_share = m.number("gemm_share");
  r.waits = m.has("waits");
  if (!r.waits) return r;
  const Fields waits = m.inside("waits");
  r.compute_share = waits.number("compute");
  r.copies_share = waits.number("copies");
  r.updates_share = waits.number("update");
  return r;
} catch (const Error&) {
  return {};
}

std::string results_csv(const Study& study, const std::vector<PointResult>& results) {
  std::string text =
      "id,strategy,title,batch,accumulate,seq,status,proved,planned_device_bytes,planned_pinned_bytes,planned_host_"
      "bytes,"
      "planned_disk_bytes,peak_bytes,process_peak_bytes,tokens_per_second,tokens_per_second_q20,tokens_per_second_q80,"
      "seconds,seconds_q20,seconds_q80,loss,gemm_share,compute_share,copies_share,update_share,why\n";
  for (const PointResult& r : results) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},", r.point.id, r.point.strategy,
                        quoted(strategy_of(study, r.point).title), r.point.batch, r.point.accumulate, r.point.seq,
                        status_text(r.status), r.proved ? "yes" : "no", r.planned.device, r.planned.pinned,
                        r.planned.host, r.planned.disk);
    if (r.status == PointStatus::done) {
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},", r.peak_bytes(), r.process_peak_bytes,
                          r.tokens_per_second.median, r.tokens_per_second.q20, r.tokens_per_second.q80,
                          r.seconds.median, r.seconds.q20, r.seconds.q80, r.loss, r.gemm_share);
      text += r.waits ? fmt::format("{},{},{},", r.compute_share, r.copies_share, r.updates_share) : ",,,";
    } else {
      text += ",,,,,,,,,,,,,";
    }
    text += quoted(r.why) + "\n";
  }
  return text;
}

Json results_json(const Study& study, const std::vector<PointResult>& results) {
  Json::Array rows;
  for (const PointResult& r : results) {
    Json row;
    row.set("id", r.point.id);
    row.set("strategy", r.point.strategy);
    row.set("title", strategy_of(study, r.point).title);
    row.set("batch", r.point.batch);
    row.set("accumulate", r.point.accumulate);
    row.set("seq", r.point.seq);
    row.set("status", status_text(r.status));
    row.set("proved", r.proved);
    row.set("why", r.why);
    row.set("planned", space_json(r.planned));
    if (r.status == PointStatus::done) {
      row.set("peak_bytes", r.peak_bytes());
      row.set("measured", measured_json(r));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tigon
