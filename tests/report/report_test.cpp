// What tigon report makes of study folders: whole ones, partial ones, and what strangers wrote.
#include "report/report.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "json/json.hpp"
#include "report/page.hpp"
#include "report/study_folder.hpp"
#include "report/timeline_check.hpp"
#include "tigon/core/error.hpp"

namespace tigon::report {

namespace {

namespace fs = std::filesystem;

const std::string kStudy = R"({
  "format": "tigon-study", "version": 1, "name": "t", "title": "A test", "cap_bytes": 1073741824,
  "strategies": [{"name": "unfused", "title": "Unfused", "flags": "--fused none --recompute block"},
                 {"name": "fused", "title": "Fused", "flags": "--recompute block"}],
  "points": [{"id": "unfused-1", "strategy": "unfused", "batch": 1, "accumulate": 1, "seq": 64},
             {"id": "unfused-2", "strategy": "unfused", "batch": 2, "accumulate": 1, "seq": 64},
             {"id": "fused-1", "strategy": "fused", "batch": 1, "accumulate": 1, "seq": 64},
             {"id": "fused-2", "strategy": "fused", "batch": 2, "accumulate": 1, "seq": 64}]})";

const std::string kMemory = R"({
  "format": "tigon-memory", "version": 1, "unit": "ns", "step": 2, "total_bytes": 768, "peak_bytes": 768,
  "classes": ["weights", "loss"], "names": ["w", "logits"], "places": ["", "loss"],
  "phases": [{"name": "loss", "begin": 5, "end": 9}],
  "blocks": {"name": [0, 1], "class": [0, 1], "bytes": [256, 512], "offset": [0, 256], "birth": [0, 5], "death": [-1, 9],
             "place": [0, 1]}})";

const std::string kTimes = R"({"format": "tigon-times", "version": 1, "step": 2, "seconds": 0.5,
  "rows": [{"phase": "forward", "name": "qkv", "calls": 2, "seconds": 0.25, "floor_seconds": 0.125}]})";

const std::string kKernels = R"([{"op": "rmsnorm", "shape": "8x8", "dtype": "f32", "device": "cpu", "provider": "tigon",
  "fwd_ms": 1, "bwd_ms": 1, "full_ms": 2.5, "q20_ms": 2, "q80_ms": 3, "peak_bytes": 64, "floor_ms": 1}])";

// `bytes`: of the plan.
std::string point_text(const std::string& strategy, int batch, int64_t bytes, const std::string& rest) {
  return R"({"format": "tigon-study-point", "version": 1, "id": ")" + strategy + "-" + std::to_string(batch) +
         R"(", "strategy": ")" + strategy + R"(", "batch": )" + std::to_string(batch) +
         R"(, "accumulate": 1, "seq": 64, "command": "tigon train", "planned": {"device": )" + std::to_string(bytes) +
         R"(, "pinned": 0, "host": 0, "disk": 0},
         "by_class": {"weights": 256, "loss": 512}, "alive_at_peak": [{"name": "logits", "class": "loss", "bytes": 512, "count": 1}],
         "formulas": {"static_bytes": 1, "static_mixed_16p": 2, "checkpoints": 3, "logits": 4, "chunk_logits": 5}, )" +
         rest + "}";
}

std::string done(int rate) {
  const std::string r = std::to_string(rate);
  return R"("status": "done", "why": "", "measured": {"steps": 3, "tokens": 64,
    "seconds": {"median": 0.5, "q20": 0.4, "q80": 0.6}, "tokens_per_second": {"median": )" +
         r + R"(, "q20": )" + r + R"(, "q80": )" + r + R"(}, "used_bytes": 99, "beyond_plan_bytes": 100, "loss": 5.5})";
}

const std::string kOut = R"("status": "out of memory", "proved": false, "why": "the plan needs 2 GiB")";

class Study : public ::testing::Test {
 protected:
  Study() {
    std::string pattern = (fs::temp_directory_path() / "tigon-report-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    folder_ = root_ / "study";
    write("study.json", kStudy);
    write("points/unfused-1/point.json", point_text("unfused", 1, 700, done(1000)));
    write("points/unfused-2/point.json", point_text("unfused", 2, 2147483648, kOut));
    write("points/fused-1/point.json", point_text("fused", 1, 300, done(1500)));
    write("points/fused-2/point.json", point_text("fused", 2, 400, done(12345)));
    for (const char* id : {"unfused-1", "fused-1", "fused-2"}) {
      write(std::string("points/") + id + "/memory.json", kMemory);
      write(std::string("points/") + id + "/times.json", kTimes);
    }
    write("kernels.json", kKernels);
  }
  ~Study() override {
    std::error_code none;
    fs::remove_all(root_, none);
  }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // The one note of the study.
  std::string note() const {
    const StudyFolder study = read_study(folder_);
    EXPECT_EQ(study.notes.size(), 1u);
    return study.notes.empty() ? "" : study.notes[0];
  }
  std::string refusal() const {
    try {
      (void)read_study(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static std::string status(const StudyFolder& study, size_t place) {
    return study.points.at(place).find("status")->string("status");
  }

  fs::path root_, folder_;
};

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Study, WholeIsReadWithoutANote) {
  const StudyFolder study = read_study(folder_);
  EXPECT_TRUE(study.notes.empty());
  ASSERT_EQ(study.points.size(), 4u);
  EXPECT_EQ(status(study, 1), "out of memory");
  EXPECT_NE(study.points[0].find("memory"), nullptr);
  EXPECT_NE(study.points[0].find("times"), nullptr);
  EXPECT_EQ(study.kernels.size(), 1u);
}

TEST_F(Study, PageHasEverythingInOneFileAndSaysWhatItShows) {
  const Summary summary = write_report(folder_, folder_ / "report.html");
  ASSERT_GE(summary.headline.size(), 3u);
  EXPECT_EQ(summary.headline[0],
            "Within 1 GiB, at 64 tokens a sequence, “Fused” trains batches up to 2, “Unfused” up to 1.");
  EXPECT_EQ(
      summary.headline[1],
      "At batch 1 × 64 tokens, “Fused” takes 400 B where “Unfused” takes 800 B: 50 % less, and it is 1.50 × as fast.");
  EXPECT_EQ(summary.headline.back(), "The fastest point is “Fused” at batch 2 × 64 tokens: 12,345 tokens/s in 500 B.");
  EXPECT_EQ(summary.finished, 4);
  const std::string page = text_of(folder_ / "report.html");
  EXPECT_TRUE(contains(page, "Chart.js v3.9"));
  EXPECT_TRUE(contains(page, "THE SOFTWARE IS PROVIDED"));
  EXPECT_FALSE(contains(page, "{{"));
  EXPECT_FALSE(contains(page, "src=\"http"));
  EXPECT_FALSE(contains(page, "sourceMappingURL"));
  EXPECT_LT(page.size(), 1u << 20);
}

TEST_F(Study, SpeedsThatTheStepsDoNotTellApartAreNotCompared) {
  std::string wide = done(1500);
  wide.replace(wide.find("\"q20\": 1500"), 11, "\"q20\": 900");
  write("points/fused-1/point.json", point_text("fused", 1, 300, wide));
  const Summary summary = write_report(folder_, folder_ / "report.html");
  EXPECT_TRUE(contains(summary.headline[1], "equally fast within the spread")) << summary.headline[1];
  // Nor is the fastest point one that is not told apart from another strategy's.
  wide = done(1000);
  wide.replace(wide.find("\"q80\": 1000"), 11, "\"q80\": 13000");
  write("points/unfused-1/point.json", point_text("unfused", 1, 700, wide));
  EXPECT_TRUE(contains(write_report(folder_, folder_ / "report.html").headline.back(), "; “Unfused” comes within"));
}

TEST_F(Study, FusedOpsAreComparedWithTheirSteps) {
  const std::string row = kKernels.substr(1, kKernels.size() - 2);
  std::string unfused = row, other = row;
  unfused.replace(unfused.find("\"tigon\""), 7, "\"tigon-unfused\"");
  unfused.replace(unfused.find("2.5"), 3, "10");
  other.replace(other.find("rmsnorm"), 7, "softmax");  // only in one form
  write("kernels.json", "[" + row + "," + unfused + "," + other + "]");
  EXPECT_EQ(write_report(folder_, folder_ / "report.html").headline.back(),
            "Fused, rmsnorm 8x8 f32 is 4.00 × as fast.");
}

TEST_F(Study, NumbersMayBeAsLargeAsTheyFit) {
  const std::string most = "9223372036854775807";
  std::string text = point_text("fused", 2, 9223372036854775807, done(1));
  text.replace(text.find("\"accumulate\": 1"), 15, "\"accumulate\": " + most);
  write("points/fused-2/point.json", text);
  std::string study = kStudy;
  study.replace(study.rfind("\"accumulate\": 1"), 15, "\"accumulate\": " + most);
  write("study.json", study);
  EXPECT_EQ(write_report(folder_, folder_ / "report.html").finished, 4);
}

TEST_F(Study, InterruptedOneSaysWhatIsMissing) {
  fs::remove_all(folder_ / "points/fused-2");
  fs::remove(folder_ / "kernels.json");
  EXPECT_TRUE(contains(note(), "1 of 4 points is not there: fused-2"));
  const StudyFolder study = read_study(folder_);
  EXPECT_EQ(status(study, 3), "missing");
  EXPECT_TRUE(study.kernels.empty());
  fs::remove_all(folder_ / "points");
  EXPECT_EQ(write_report(folder_, folder_ / "report.html").finished, 0);
}

TEST_F(Study, WithoutItsPlanThePointsAreShown) {
  fs::remove(folder_ / "study.json");
  EXPECT_TRUE(contains(note(), "study.json is not there"));
  EXPECT_EQ(read_study(folder_).points.size(), 4u);
  write("study.json", "{");
  EXPECT_TRUE(contains(note(), "study.json is left out"));
  fs::remove_all(folder_ / "points");
  EXPECT_TRUE(contains(refusal(), "this study cannot be read"));
}

TEST_F(Study, WhatIsNoStudyIsRefused) {
  fs::remove_all(folder_);
  EXPECT_TRUE(contains(refusal(), "this is no study"));
  fs::create_directories(folder_ / "points");
  write("config.json", "{}");
  EXPECT_TRUE(contains(refusal(), "neither a study.json nor a point"));
  fs::remove_all(folder_);
  std::ofstream(folder_) << "a file";
  EXPECT_TRUE(contains(refusal(), "this is no study"));
}

TEST_F(Study, BrokenFilesAreLeftOutAlone) {
  struct Case {
    const char *file, *text, *said;
  };
  std::string many = kKernels.substr(0, kKernels.size() - 1);
  for (int i = 0; i < 2000; ++i) many += "," + kKernels.substr(1, kKernels.size() - 2);
  many += "]";
  for (const Case& c : {
           Case{"points/fused-1/point.json", "", "this is not JSON"},
           Case{"points/fused-1/point.json", "[]", "this is another file"},
           Case{"points/fused-1/memory.json", "{}", "'format' is missing"},
           Case{"points/fused-1/memory.json", "[1e999]", "this is not JSON"},
           Case{"points/fused-1/times.json", R"({"format": "tigon-times", "version": 2})", "version"},
           Case{"kernels.json", R"([{"op": 3}])", "'op': the value has the wrong type"},
           Case{"kernels.json", many.c_str(), "too many rows"},
           Case{"kernels.json", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested deeper"},
       }) {
    const std::string whole = text_of(folder_ / c.file);
    write(c.file, c.text);
    EXPECT_TRUE(contains(note(), std::string(c.file) + " is left out")) << c.file;
    EXPECT_TRUE(contains(note(), c.said)) << note();
    EXPECT_EQ(write_report(folder_, folder_ / "report.html").notes.size(), 1u);
    write(c.file, whole);
  }
}

TEST_F(Study, PointsMustBeThoseOfTheirFolders) {
  const std::string file = "points/fused-1/point.json", right = point_text("fused", 1, 300, done(1500));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = right;
    text.replace(text.find(from), from.size(), to);
    write(file, text);
    return note();
  };
  EXPECT_TRUE(contains(with(R"("batch": 1)", R"("batch": 3)"), "it is another point than its folder's"));
  EXPECT_TRUE(contains(with(R"("batch": 1)", R"("batch": -1)"), "the number is negative"));
  EXPECT_TRUE(contains(with(R"("batch": 1)", R"("batch": 99999999999999999999)"), "left out"));
  EXPECT_TRUE(contains(with(R"("id": "fused-1")", R"("id": "../../x")"), "it is another point than its folder's"));
  EXPECT_TRUE(contains(with(R"("status": "done")", R"("status": "wonderful")"), "the word is not known"));
  EXPECT_TRUE(contains(with(R"("measured")", R"("guessed")"), "'measured' is missing"));
  EXPECT_TRUE(
      contains(with(R"("used_bytes": 99)", R"("used_bytes": "99")"), "'used_bytes': the value has the wrong type"));
}

TEST_F(Study, NamesThatLeadElsewhereAreNoPoints) {
  write("elsewhere/point.json", point_text("fused", 1, 0, done(1)));
  for (const char* id : {"../elsewhere", "/etc", "", ".", "fused-1/../fused-1", "a\\nb"}) {
    std::string text = kStudy;
    text.replace(text.find("unfused-2"), 9, id);
    write("study.json", text);
    const StudyFolder study = read_study(folder_);
    ASSERT_EQ(study.notes.size(), 2u) << id;
    EXPECT_TRUE(contains(study.notes[0], "is no name of a folder")) << study.notes[0];
    EXPECT_TRUE(contains(study.notes[1], "'unfused-2' is not in study.json"));
  }
  std::string twice = kStudy;
  twice.replace(twice.find("unfused-2"), 9, "unfused-1");
  write("study.json", twice);
  EXPECT_TRUE(contains(read_study(folder_).notes[0], "stands twice"));
}

TEST_F(Study, WhatIsNoPlainFileIsNotWaitedFor) {
  const fs::path pipe = folder_ / "points/fused-1/memory.json";
  fs::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(contains(note(), "memory.json is left out"));
  fs::remove(pipe);
  fs::create_directory(pipe);
  EXPECT_TRUE(contains(note(), "memory.json is left out"));
}

TEST_F(Study, LargeFilesAreRefusedBeforeTheyAreRead) {
  fs::resize_file(folder_ / "points/fused-1/memory.json", uintmax_t{1} << 40);
  EXPECT_TRUE(contains(note(), "memory.json is left out"));
}

TEST_F(Study, WordsFromFilesNeverBecomeMarkup) {
  const std::string evil = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>{{script}}";
  std::string text = kStudy;
  text.replace(text.find("A test"), 6, evil);
  text.replace(text.find("\"Fused\""), 7, "\"" + evil + "\"");
  write("study.json", text);
  (void)write_report(folder_, folder_ / "report.html");
  const std::string page = text_of(folder_ / "report.html");
  EXPECT_FALSE(contains(page, "<script>alert"));
  EXPECT_FALSE(contains(page, "<img"));
  size_t scripts = 0;
  for (size_t at = page.find("</script"); at != std::string::npos; at = page.find("</script", at + 1)) ++scripts;
  EXPECT_EQ(scripts, 3u);  // the data, the library, the page's own
  // What the page reads is what was written.
  const size_t begin = page.find("id=\"data\">") + 10;
  const Json data = Json::parse(page.substr(begin, page.find("</script", begin) - begin), "the page");
  EXPECT_EQ(data.find("title")->string("title"), evil);
}

TEST_F(Study, FlippedAndCutFilesNeverDoMoreThanANote) {
  std::mt19937 random(1);
  for (const char* file : {"study.json", "points/fused-1/point.json", "points/fused-1/memory.json",
                           "points/fused-1/times.json", "kernels.json"}) {
    const std::string whole = text_of(folder_ / file);
    for (int i = 0; i < 150; ++i) {
      std::string text = whole.substr(0, i % 3 == 0 ? random() % whole.size() : whole.size());
      for (int flips = i % 3; flips > 0 && !text.empty(); --flips)
        text[random() % text.size()] = "0{}[],:\"-e9\\\x80"[random() % 13];
      write(file, text);
      try {
        (void)write_report(folder_, folder_ / "report.html");
      } catch (const Error& error) {
        ADD_FAILURE() << file << ": " << error.what();
      }
    }
    write(file, whole);
  }
}

TEST_F(Study, PageAppearsWholeOrNotAtAll) {
  EXPECT_THROW((void)write_report(folder_, root_ / "nowhere/report.html"), Error);
  EXPECT_THROW((void)write_report(folder_, folder_), Error);
  std::ofstream(folder_ / "report.html") << "old";
  fs::remove(folder_ / "study.json");
  fs::remove_all(folder_ / "points");
  EXPECT_THROW((void)write_report(folder_, folder_ / "report.html"), Error);
  EXPECT_EQ(text_of(folder_ / "report.html"), "old");
}

TEST(Timeline, ColumnsMustFitEachOther) {
  EXPECT_NO_THROW((void)checked_timeline(Json::parse(kMemory, "m"), "m"));
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = kMemory;
    text.replace(text.find(from), from.size(), to);
    try {
      (void)checked_timeline(Json::parse(text, "m"), "m");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(contains(refused(R"("name": [0, 1])", R"("name": [0])"), "'name' is not as long as 'birth'"));
  EXPECT_TRUE(contains(refused(R"("name": [0, 1])", R"("name": [0, 2])"), "should have less than 2"));
  EXPECT_TRUE(contains(refused(R"("class": [0, 1])", R"("class": [-1, 1])"), "negative"));
  EXPECT_TRUE(contains(refused(R"("death": [-1, 9])", R"("death": [-1, 4])"), "dies before its birth"));
  EXPECT_TRUE(contains(refused(R"("death": [-1, 9])", R"("death": [-2, 9])"), "dies before its birth"));
  EXPECT_TRUE(contains(refused(R"("death": [-1, 9])", R"("death": [-1, 9.5])"), "wrong type"));
  EXPECT_TRUE(
      contains(refused(R"("bytes": [256, 512])", R"("bytes": [256, 9223372036854775807])"), "should have less"));
  std::string many = "\"w\"";
  for (int i = 0; i < 100000; ++i) many += ", \"w\"";
  EXPECT_TRUE(
      contains(refused(R"("classes": ["weights", "loss"])", R"("classes": [)" + many + "]"), "more classes than"));
  EXPECT_TRUE(contains(refused(R"("ns")", R"("hours")"), "neither ns nor events"));
  EXPECT_TRUE(contains(refused(R"("place": [0, 1]})", R"("place": []})"), "'place' is not as long"));
}

TEST(PlanPage, HasTheStepsMemory) {
  std::string pattern = (fs::temp_directory_path() / "tigon-plan-XXXXXX").string();
  const fs::path folder = mkdtemp(pattern.data());
  const ModelConfig model = builtin_model("llama-bytes-1m");
  const ParameterList parameters(model);
  TrainConfig train;
  train.seq = 64;
  const MemoryPlan plan = plan_memory(model, parameters, train);
  write_plan_page(folder / "plan.html", {.name = "m", .config = model, .parameters = parameters},
                  {{.name = "planned", .title = "As planned", .plan = plan}}, 0, {"a note"});
  const std::string page = text_of(folder / "plan.html");
  const size_t begin = page.find("id=\"data\">") + 10;
  const Json data = Json::parse(page.substr(begin, page.find("</script", begin) - begin), "the page");
  const Json& point = data.find("points")->array("")[0];
  EXPECT_EQ(point.find("planned")->find("device")->integer(""), plan.total_bytes());
  EXPECT_EQ(point.find("memory")->find("total_bytes")->integer(""), plan.total_bytes());
  int64_t sum = 0;
  for (const auto& [name, bytes] : point.find("by_class")->object("")) sum += bytes.integer(name);
  EXPECT_EQ(sum, plan.total_bytes());
  fs::remove_all(folder);
}

}  // namespace

}  // namespace tigon::report
