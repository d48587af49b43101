// The recorder, and the three files: what Python's readers make of them is in tests/train/test_tracing.py.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/memory/arena.hpp"
#include "tigon/trace/chrome_trace.hpp"
#include "tigon/trace/recorder.hpp"
#include "tigon/trace/snapshot.hpp"
#include "tigon/trace/tensorboard.hpp"

namespace tigon::test {
namespace {

namespace fs = std::filesystem;

class Trace : public testing::Test {
 protected:
  Trace() {
    std::string pattern = (fs::temp_directory_path() / "tigon-trace-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Trace() override {
    std::error_code none;
    fs::remove_all(folder_, none);
  }
  fs::path folder_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// "layers.1 < step.3": a scope and those around it.
std::string path_of(const Recording& r, int32_t scope) {
  std::string text;
  for (; scope >= 0; scope = r.scopes[static_cast<size_t>(scope)].parent)
    text += (text.empty() ? "" : " < ") + r.text(r.scopes[static_cast<size_t>(scope)]);
  return text;
}

TEST_F(Trace, ScopesOfEachThreadNestAndOnlyThoseBetweenBeginAndEndAreKept) {
  Recorder recorder;
  const Context ctx{.observer = &recorder};
  {
    const Scope before(ctx, "before");
    recorder.begin(3, false);
    const Scope inside(ctx, "inside", 1);
  }
  {
    const Scope step(ctx, kStepScope, 3);
    std::thread other([&] {
      const Context theirs{.observer = beside(ctx)};
      const Scope outer(theirs, "outer");
      const Scope inner(theirs, "inner");
    });
    other.join();
    const Scope after(ctx, "layers", 7);
    recorder.end(3);
    const Scope late(ctx, "late");  // whose leave is not that of "layers"
  }
  const Recording& r = recorder.recording();
  ASSERT_EQ(r.scopes.size(), 5u);
  std::vector<std::string> paths;
  for (int32_t s = 0; s < 5; ++s) paths.push_back(path_of(r, s));
  EXPECT_EQ(paths, (std::vector<std::string>{"inside.1", "step.3", "outer", "inner < outer", "layers.7 < step.3"}));
  EXPECT_EQ(r.scopes[1].thread, 0);
  EXPECT_EQ(r.scopes[3].thread, 1);
  for (const RecordedScope& scope : r.scopes) EXPECT_GE(scope.end, scope.begin);
  EXPECT_GE(r.scopes[1].end, r.scopes[4].end);
  EXPECT_FALSE(r.cut);
}

TEST_F(Trace, MemoryIsThePlansWithTheScopesOfItsBirths) {
  Ledger stays, step;
  (void)stays.record_birth("weight", 1000, MemoryClass::weights);
  const int64_t a = step.record_birth("a", 500, MemoryClass::activations);
  const int64_t b = step.record_birth("b", 300, MemoryClass::loss);
  step.record_death(a);
  step.record_death(b);
  const Plan resident = Plan::pack(stays), plan = Plan::pack(step);
  HostMemory memory(plan.bytes());
  ReplayArena arena(plan, memory.data(), memory.bytes());

  Recorder recorder;
  recorder.set_memory({}, 4096, {{"stays", 0, 4096}, {"steps", 4096, plan.bytes()}});
  recorder.add_resident(resident, 0);
  MemorySource& watched = recorder.watch(arena, plan, 4096);
  Context ctx{.memory = &watched, .observer = &recorder};
  const auto walk = [&](int64_t number) {
    const Scope scope(ctx, kStepScope, number);
    Buffer first = ctx.take("a", 500, MemoryClass::activations);
    const Scope inner(ctx, "inner");
    const Buffer second = ctx.take("b", 300, MemoryClass::loss);
    first.reset();
  };
  walk(1);  // which nobody records
  arena.restart();
  recorder.begin(2, false);
  walk(2);
  arena.restart();
  walk(3);
  recorder.end(3);
  arena.restart();
  walk(4);

  const Recording& r = recorder.recording();
  ASSERT_EQ(r.blocks.size(), 5u);
  EXPECT_EQ(r.name(r.blocks[0].name), "weight");
  EXPECT_EQ(r.blocks[1].offset, 4096 + plan.blocks()[0].offset);
  EXPECT_EQ(r.blocks[1].bytes, 500);
  EXPECT_EQ(r.blocks[1].granted, 512);
  EXPECT_EQ(path_of(r, r.blocks[2].scope), "inner < step.2");
  EXPECT_EQ(path_of(r, r.blocks[4].scope), "inner < step.3");
  ASSERT_EQ(r.memory.size(), 9u);
  EXPECT_EQ(r.events_until(2), 5u);
  EXPECT_EQ(r.peak_bytes(), 1024 + 512 + 512);
  write_snapshot(folder_ / "s", r);
  EXPECT_TRUE(bytes_of(folder_ / "s").starts_with("\x80\x02}("));
  EXPECT_EQ(error_of([&] { check_snapshot_path(folder_ / "s"); }), "");
}

TEST_F(Trace, MoreThanIsKeptIsCutOff) {
  Recorder recorder;
  const Context ctx{.observer = &recorder};
  recorder.begin(1, false);
  {
    const Scope outer(ctx, "outer");
    for (size_t i = 0; i < Recorder::kMostEvents + 5; ++i) const Scope scope(ctx, "inner");
  }
  recorder.end(1);
  EXPECT_TRUE(recorder.recording().cut);
  EXPECT_EQ(recorder.recording().scopes.size(), Recorder::kMostEvents);
  // Those that were not kept have not ended the one around them.
  EXPECT_GE(recorder.recording().scopes.front().end, recorder.recording().scopes.back().end);
}

// What a GPU would have reported.
Recording on_a_gpu() {
  using Kind = DeviceActivity::Kind;
  Recording r;
  r.device = {.kind = DeviceKind::cuda};
  r.names = {kStepScope, "forward", "linear_forward", "copy to the device", "x", "wait for copies"};
  r.description = {.name = "A \"GPU\"",
                   .memory = int64_t{1} << 36,
                   .major = 9,
                   .multiprocessors = 132,
                   .warp_size = 32,
                   .threads_per_block = 1024,
                   .threads_per_multiprocessor = 2048,
                   .registers_per_multiprocessor = 65536,
                   .shared_memory_per_block = 49152,
                   .shared_memory_per_multiprocessor = 233472};
  r.regions = {{"steps", 0, 1024}};
  r.blocks = {{.name = 4, .bytes = 100, .granted = 256, .scope = 1}};
  r.first_step = 2;
  r.last_step = 4;
  int64_t correlation = 1;
  for (int64_t step = 2; step <= 4; ++step) {
    const int64_t t = step * 1000000;
    const auto first = static_cast<int32_t>(r.scopes.size());
    r.scopes.push_back({.name = 0, .index = step, .begin = t, .end = t + 900000});
    r.scopes.push_back({.name = 1, .parent = first, .begin = t + 1000, .end = t + 800000});
    r.scopes.push_back({.name = 2, .parent = first + 1, .begin = t + 2000, .end = t + 90000});
    r.scopes.push_back({.name = 3, .thread = 1, .begin = t + 3000, .end = -1});
    r.scopes.push_back({.name = 5, .thread = 2, .begin = t + 3000, .end = t + 4000});
    r.scopes.push_back({.name = 3, .thread = 2, .begin = t + 5000, .end = t + 6000});
    r.memory.push_back({t + 1500, 0, true});
    r.memory.push_back({t + 90000, 0, false});
    const auto add = [&](Kind kind, const char* call, const char* name, int64_t scope, int64_t begin, int64_t stream) {
      r.activities.push_back({.kind = Kind::call,
                              .name = call,
                              .begin = t + begin,
                              .end = t + begin + 5000,
                              .correlation = correlation,
                              .scope = scope});
      DeviceActivity activity{.kind = kind,
                              .name = name,
                              .begin = t + begin + 10000,
                              .end = t + begin + 300000,
                              .correlation = correlation++,
                              .scope = scope,
                              .stream = stream};
      if (kind == Kind::kernel) {
        activity.grid = {264, 1, 1};
        activity.block = {256, 1, 1};
        activity.registers = 64;
      } else {
        activity.bytes = 4096;
      }
      r.activities.push_back(activity);
    };
    add(Kind::kernel, "cudaLaunchKernel", "void gemm<float, \"x\">(int)", first + 2, 5000, 7);
    add(Kind::copy, "cudaMemcpyAsync", "Memcpy HtoD", first + 3, 6000, 13);
    add(Kind::fill, "cudaMemsetAsync", "Memset", first + 2, 20000, 7);
    r.activities.push_back({.kind = Kind::kernel, .name = "somebody else's", .scope = -1});
  }
  return r;
}

TEST_F(Trace, AGpusKernelsAreJoinedWithTheOpsThatAskedForThem) {
  const fs::path path = folder_ / "gpu.pt.trace.json";
  write_chrome_trace(path, on_a_gpu());
  if (const char* keep = std::getenv("TIGON_KEEP_TRACE")) fs::copy_file(path, keep);
  const Json trace = Json::parse(bytes_of(path), "trace");
  const auto& properties = trace.find("deviceProperties")->array("deviceProperties");
  ASSERT_EQ(properties.size(), 1u);
  EXPECT_EQ(properties[0].find("name")->string("name"), "A \"GPU\"");
  std::map<std::string, int> count;
  std::map<int64_t, int64_t> op_of_call, op_of_work;
  std::map<int64_t, std::string> ops;
  std::vector<std::string> threads;
  for (const Json& event : trace.find("traceEvents")->array("traceEvents")) {
    const Json* category = event.find("cat");
    const std::string name = event.find("name")->string("name");
    if (name == "thread_name") threads.push_back(event.find("args")->find("name")->string("name"));
    if (category == nullptr) continue;
    const std::string kind = category->string("cat");
    ++count[kind];
    const Json* args = event.find("args");
    if (event.find("ph")->string("ph") != "X") continue;
    const int64_t external = args->find("External id")->integer("id");
    if (kind == "cpu_op") ops[external] = event.find("name")->string("name");
    if (kind == "cuda_runtime") op_of_call[args->find("correlation")->integer("c")] = external;
    if (kind == "kernel" || kind == "gpu_memcpy" || kind == "gpu_memset")
      op_of_work[args->find("correlation")->integer("c")] = external;
    if (kind == "kernel") {
      EXPECT_EQ(event.find("tid")->integer("tid"), 7);
      EXPECT_EQ(args->find("blocks per SM")->number("b"), 2.0);
      EXPECT_EQ(args->find("est. achieved occupancy %")->number("o"), 25);
    }
  }
  // By what they do, also where they waited first.
  EXPECT_EQ(threads,
            (std::vector<std::string>{"steps", "copy to the device", "copy to the device", "stream 7", "stream 13"}));
  EXPECT_EQ(op_of_call, op_of_work);
  EXPECT_EQ(op_of_call.size(), 9u);
  EXPECT_EQ(ops[op_of_work[1]], "linear_forward");
  EXPECT_EQ(ops[op_of_work[2]], "copy to the device");
  EXPECT_EQ(count["user_annotation"], 3);
  EXPECT_EQ(count["kernel"], 3);
  EXPECT_EQ(count["gpu_memcpy"], 3);
  EXPECT_EQ(count["gpu_memset"], 3);
  EXPECT_EQ(count["ac2g"], 18);
}

TEST_F(Trace, NothingElseIsOverwritten) {
  std::ofstream(folder_ / "data.json") << R"({"schema":1})";
  std::ofstream(folder_ / "data.json.gz") << "not even gzip";
  for (const char* name : {"data.json", "data.json.gz"}) {
    EXPECT_NE(error_of([&] { check_chrome_trace_path(folder_ / name); }).find("would overwrite"), std::string::npos);
    EXPECT_NE(error_of([&] { check_snapshot_path(folder_ / name); }).find("would overwrite"), std::string::npos);
  }
  EXPECT_NE(error_of([&] { check_chrome_trace_path(folder_ / "trace"); }).find(".pt.trace.json"), std::string::npos);
  EXPECT_NE(error_of([&] { check_chrome_trace_path(folder_ / "no/t.json"); }).find("No such file"), std::string::npos);
  for (const char* name : {"t.pt.trace.json", "t.pt.trace.json.gz"}) {
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(error_of([&] { check_chrome_trace_path(folder_ / name); }), "");
      write_chrome_trace(folder_ / name, on_a_gpu());
    }
  }
  EXPECT_LT(fs::file_size(folder_ / "t.pt.trace.json.gz"), fs::file_size(folder_ / "t.pt.trace.json") / 4);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.push_back(entry.path().extension());
  EXPECT_EQ(std::count(left.begin(), left.end(), ".tmp"), 0);
}

TEST_F(Trace, TensorboardsRecordsAreThoseOfTheFormat) {
  {
    TensorboardFile file(folder_ / "tb", 10), second(folder_ / "tb", 11);
    file.add(11, {{"train/loss", 0.5}});
  }
  int files = 0;
  std::string bytes;
  for (const auto& entry : fs::directory_iterator(folder_ / "tb")) {
    ++files;
    if (entry.path().extension() == ".0") bytes = bytes_of(entry.path());
  }
  EXPECT_EQ(files, 2);
  // The first record but for its time: 24 bytes, whose checksum any file of this version begins with.
  ASSERT_GT(bytes.size(), 16u);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  EXPECT_EQ(length, 26u);
  EXPECT_NE(bytes.find("brain.Event:2"), std::string::npos);
  EXPECT_NE(bytes.find(std::string("\x0a\x0atrain/loss\x15\0\0\0\x3f", 17)), std::string::npos);
  std::ofstream(folder_ / "file") << "x";
  EXPECT_NE(error_of([&] { const TensorboardFile none(folder_ / "file", 0); }).find("files cannot be made"),
            std::string::npos);
}

}  // namespace
}  // namespace tigon::test
