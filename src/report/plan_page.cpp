#include <fmt/format.h>

#include "report/page.hpp"
#include "report/report.hpp"
#include "report/timeline_check.hpp"
#include "report/words.hpp"
#include "tigon/core/version.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/train/plan_timeline.hpp"

namespace tigon::report {

namespace {

Json by_class(const MemoryPlan& plan) {
  Json::Object classes;
  int64_t packing = plan.total_bytes();
  const auto peak = plan.peak_by_class();
  for (size_t i = 0; i < peak.size(); ++i) {
    if (peak[i] > 0) classes.emplace_back(to_string(static_cast<MemoryClass>(i)), peak[i]);
    packing -= peak[i];
  }
  classes.emplace_back("packing", packing);
  return classes;
}

Json alive_at_peak(const MemoryPlan& plan) {
  Json::Array rows;
  for (const MemoryPlan::PeakRow& row : plan.alive_at_peak()) {
    rows.emplace_back(Json::Object{{"name", row.name},
                                   {"class", std::string(to_string(row.memory_class))},
                                   {"bytes", row.bytes},
                                   {"count", row.count}});
  }
  return rows;
}

Json point_of(const PlannedRun& run, const PlannedModel& model) {
  const TrainConfig& train = run.plan.train;
  const SpaceBytes bytes = run.plan.bytes();
  const StudyFormulas f = study_formulas(model.config, model.parameters, train);
  return Json::Object{
      {"id", run.name},
      {"strategy", run.name},
      {"batch", train.batch},
      {"accumulate", train.accumulate},
      {"seq", train.seq},
      {"command", run.command},
      {"status", "planned"},
      {"planned",
       Json::Object{{"device", bytes.device}, {"pinned", bytes.pinned}, {"host", bytes.host}, {"disk", bytes.disk}}},
      {"by_class", by_class(run.plan)},
      {"alive_at_peak", alive_at_peak(run.plan)},
      {"formulas", Json::Object{{"static_bytes", f.static_bytes},
                                {"static_mixed_16p", f.static_mixed_16p},
                                {"checkpoints", f.checkpoints},
                                {"logits", f.logits},
                                {"chunk_logits", f.chunk_logits}}},
      {"memory", checked_timeline(Json::parse(memory_timeline(run.plan).json(), "the plan"), "the plan")}};
}

Json::Array headline(const std::vector<PlannedRun>& runs, int64_t cap) {
  Json::Array sentences;
  const int64_t bytes = runs.front().plan.total_bytes();
  std::string sentence = "This run will need " + bytes_text(bytes) + " of the device, to the byte";
  if (cap > 0) {
    sentence += bytes <= cap ? fmt::format(", and fits in {}", bytes_text(cap))
                             : fmt::format(", which is {} more than {}", bytes_text(bytes - cap), bytes_text(cap));
  }
  sentences.emplace_back(sentence + ".");
  for (size_t i = 1; i < runs.size(); ++i) {
    sentences.emplace_back(fmt::format("{} it would need {}.", runs[i].title, bytes_text(runs[i].plan.total_bytes())));
  }
  const auto peak = runs.front().plan.alive_at_peak();
  if (!peak.empty()) {
    sentences.emplace_back(
        fmt::format("The most at its peak is held by {}: {}.", peak.front().name, bytes_text(peak.front().bytes)));
  }
  return sentences;
}

}  // namespace

void write_plan_page(const std::filesystem::path& file, const PlannedModel& model, const std::vector<PlannedRun>& runs,
                     int64_t cap, const std::vector<std::string>& notes) {
  Json::Array points, strategies, pair;
  for (const PlannedRun& run : runs) {
    points.push_back(point_of(run, model));
  }
  // What is compared with comes first, as in a study.
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    strategies.emplace_back(Json::Object{{"name", run->name}, {"title", run->title}});
    pair.emplace_back(run->name);
  }
  const TrainConfig& train = runs.front().plan.train;
  const std::string title = fmt::format("{}, {} × {} tokens", model.name, train.batch, train.seq);
  const Json study = Json::Object{{"tigon", version()},
                                  {"machine", Json::Object{{"device", model.device}}},
                                  {"model", Json::Object{{"name", model.name},
                                                         {"parameters", model.parameters.elements()},
                                                         {"layers", model.config.layers},
                                                         {"hidden", model.config.hidden},
                                                         {"vocab", model.config.vocab}}},
                                  {"cap_bytes", cap},
                                  {"strategies", std::move(strategies)}};
  const Json data = Json::Object{{"kind", "plan"},
                                 {"title", title},
                                 {"headline", headline(runs, cap)},
                                 {"notes", Json::Array(notes.begin(), notes.end())},
                                 {"study", study},
                                 {"points", std::move(points)},
                                 {"pair", std::move(pair)}};
  write_text_file(file, page_text(title, data));
}

}  // namespace tigon::report
