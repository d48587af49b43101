#include "report/report.hpp"

#include "report/headline.hpp"
#include "report/page.hpp"
#include "report/study_folder.hpp"
#include "tigon/storage/files.hpp"

namespace tigon::report {

namespace {

Json::Array texts(const std::vector<std::string>& from) { return {from.begin(), from.end()}; }

std::string title_of(const Json& study) {
  for (const char* key : {"title", "name"}) {
    const Json* text = study.find(key);
    if (text != nullptr && !text->string(key).empty()) return text->string(key);
  }
  return "A study";
}

// The points whose memory over a step is shown first: of those that ran, else of those that are planned.
Json::Array pair_to_show(const StudyFolder& study) {
  for (const bool ran : {true, false}) {
    const auto [most, least] = telling_pair(study, [ran](const Json& point) {
      const bool shows = point.find("memory") != nullptr && point.find("planned") != nullptr &&
                         (!ran || point.find("measured") != nullptr);
      return shows ? point.find("planned")->find("device")->integer("device") : int64_t{-1};
    });
    if (most == nullptr || (ran && most == least)) continue;
    if (most == least) return {*most->find("id")};
    return {*most->find("id"), *least->find("id")};
  }
  return {};
}

}  // namespace

Summary write_report(const std::filesystem::path& folder, const std::filesystem::path& file) {
  StudyFolder study = read_study(folder);
  Summary summary{
      .headline = headline(study), .notes = study.notes, .points = static_cast<int64_t>(study.points.size())};
  for (const Json& point : study.points) {
    if (point.find("status")->string("status") != "missing") ++summary.finished;
  }
  const Json::Array pair = pair_to_show(study);
  const std::string title = title_of(study.study);
  const Json data = Json::Object{{"kind", "study"},
                                 {"title", title},
                                 {"headline", texts(summary.headline)},
                                 {"notes", texts(summary.notes)},
                                 {"study", std::move(study.study)},
                                 {"points", std::move(study.points)},
                                 {"pair", pair},
                                 {"kernels", std::move(study.kernels)}};
  write_text_file(file, page_text(title, data));
  return summary;
}

}  // namespace tigon::report
