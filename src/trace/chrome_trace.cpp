// The categories and arguments are those of PyTorch's profiler, by which readers tell what an event is. A call of the
// host and what it asked a GPU for have the same correlation; both have the external id of the op around the call.
#include "tigon/trace/chrome_trace.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "trace/stream_file.hpp"

namespace tigon {

namespace {

constexpr std::string_view kBeginning = R"({"schemaVersion":1,)";

class ChromeTrace {
 public:
  ChromeTrace(const std::filesystem::path& path, const Recording& recording) : r_(recording), file_(path) {
    begin_ = r_.scopes.empty() ? 0 : r_.scopes.front().begin;
    if (!r_.memory.empty()) begin_ = std::min(begin_, r_.memory.front().time);
    for (const std::string& name : r_.names) quoted_.push_back(quoted(name));
  }

  void write() {
    file_.write(kBeginning);
    print(R"("displayTimeUnit":"ms","deviceProperties":[)");
    if (gpu()) write_device();
    print(R"(],"distributedInfo":{{"rank":0,"world_size":1}},"traceName":"tigon train","traceEvents":[)");
    write_names();
    write_scopes();
    write_memory();
    for (const DeviceActivity& activity : r_.activities) write_activity(activity);
    print("\n]}}\n");
    file_.commit();
  }

 private:
  static std::string quoted(const std::string& text) { return Json(text).dump(false); }

  template <class... Args>
  void print(fmt::format_string<Args...> text, Args&&... args) {
    line_.clear();
    fmt::format_to(std::back_inserter(line_), text, std::forward<Args>(args)...);
    file_.write({line_.data(), line_.size()});
  }
  // The comma before every event but the first.
  const char* next() {
    const char* comma = any_ ? ",\n" : "\n";
    any_ = true;
    return comma;
  }

  // What no step asked for belongs to whoever else uses the GPU in this process.
  bool ours(const DeviceActivity& a) const { return a.scope >= 0 && a.scope < static_cast<int64_t>(r_.scopes.size()); }
  bool gpu() const { return r_.device.kind != DeviceKind::cpu; }
  double at(int64_t time) const { return static_cast<double>(time - begin_) * 1e-3; }
  static double lasting(int64_t begin, int64_t end) { return static_cast<double>(end - begin) * 1e-3; }
  // Of the process and its threads, the first of which has the process's number.
  int64_t thread(int32_t number) const { return pid_ + number; }

  void write_device() {
    const DeviceDescription& d = r_.description;
    print(R"({{"id":{},"name":{},"totalGlobalMem":{},"computeMajor":{},"computeMinor":{},"numSms":{},"warpSize":{},)"
          R"("maxThreadsPerBlock":{},"maxThreadsPerMultiprocessor":{},"regsPerMultiprocessor":{},)"
          R"("sharedMemPerBlock":{},"sharedMemPerMultiprocessor":{}}})",
          r_.device.index, quoted(d.name), d.memory, d.major, d.minor, d.multiprocessors, d.warp_size,
          d.threads_per_block, d.threads_per_multiprocessor, d.registers_per_multiprocessor, d.shared_memory_per_block,
          d.shared_memory_per_multiprocessor);
  }

  void write_name(const char* what, int64_t pid, int64_t tid, const std::string& name) {
    print(R"({}{{"ph":"M","name":"{}","pid":{},"tid":{},"ts":0,"args":{{"{}":{}}}}})", next(), what, pid, tid,
          std::string_view(what) == "process_labels" ? "labels" : "name", quoted(name));
  }

  // A thread is called by its first scope in which it does something.
  void write_names() {
    write_name("process_name", pid_, 0, "tigon");
    write_name("process_labels", pid_, 0, "CPU");
    std::map<int32_t, std::string> threads{{0, "steps"}};
    for (const RecordedScope& scope : r_.scopes) {
      std::string& name = threads[scope.thread];
      if (name.empty() || name.starts_with(kWaitScope)) name = r_.name(scope.name);
    }
    for (const auto& [number, name] : threads) write_name("thread_name", pid_, thread(number), name);
    std::set<std::pair<int, int64_t>> streams;
    for (const DeviceActivity& a : r_.activities) {
      if (!ours(a) || a.kind == DeviceActivity::Kind::call || !streams.emplace(a.device, a.stream).second) continue;
      write_name("process_name", a.device, 0, "tigon");
      write_name("process_labels", a.device, 0, fmt::format("GPU {}", a.device));
      write_name("thread_name", a.device, a.stream, fmt::format("stream {}", a.stream));
    }
  }

  // One that was open when the recording ended ends with what ended last.
  void write_scopes() {
    int64_t last = begin_;
    for (const RecordedScope& scope : r_.scopes) last = std::max({last, scope.begin, scope.end});
    for (size_t s = 0; s < r_.scopes.size(); ++s) {
      const RecordedScope& scope = r_.scopes[s];
      const bool step = r_.name(scope.name) == kStepScope;
      const std::string name = step              ? fmt::format("\"ProfilerStep#{}\"", scope.index)
                               : scope.index < 0 ? quoted_[static_cast<size_t>(scope.name)]
                                                 : quoted(r_.text(scope));
      print(
          R"({}{{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"External id":{}}}}})",
          next(), step ? "user_annotation" : "cpu_op", name, pid_, thread(scope.thread), at(scope.begin),
          lasting(scope.begin, scope.end < 0 ? last : scope.end), external(static_cast<int64_t>(s)));
    }
  }
  // 0 means none.
  static int64_t external(int64_t scope) { return scope + 1; }

  // For TensorBoard an event of its own kind, for Perfetto a counter of all and one of each class.
  void write_memory() {
    int64_t live = 0, reserved = 0;
    std::array<int64_t, kMemoryClassCount> by_class{};
    for (const MemoryRegion& region : r_.regions) reserved += region.bytes;
    for (const MemoryEvent& event : r_.memory) {
      const RecordedBlock& block = r_.blocks[static_cast<size_t>(event.block)];
      const int64_t change = event.birth ? block.granted : -block.granted;
      int64_t& of_class = by_class[static_cast<size_t>(block.memory_class)];
      live += change;
      of_class += change;
      const double time = at(event.time);
      print(R"({}{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","s":"t","pid":{},"tid":{},"ts":{:.3f},"args":)"
            R"({{"Device Type":{},"Device Id":{},"Addr":{},"Bytes":{},"Total Allocated":{},"Total Reserved":{},)"
            R"("Tensor":{}}}}})",
            next(), pid_, thread(0), time, gpu() ? 1 : 0, gpu() ? r_.device.index : -1,
            r_.address + static_cast<uint64_t>(block.offset), change, live, reserved,
            quoted_[static_cast<size_t>(block.name)]);
      print(R"({}{{"ph":"C","name":"memory","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})", next(), pid_, time, live);
      print(R"({}{{"ph":"C","name":"memory: {}","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})", next(),
            to_string(block.memory_class), pid_, time, of_class);
    }
  }

  void write_activity(const DeviceActivity& a) {
    using Kind = DeviceActivity::Kind;
    if (!ours(a)) return;
    const int64_t caller = thread(r_.scopes[static_cast<size_t>(a.scope)].thread);
    const bool call = a.kind == Kind::call;
    const char* category = call                     ? "cuda_runtime"
                           : a.kind == Kind::kernel ? "kernel"
                           : a.kind == Kind::copy   ? "gpu_memcpy"
                                                    : "gpu_memset";
    const int64_t pid = call ? pid_ : a.device, tid = call ? caller : a.stream;
    print(
        R"({}{{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"External id":{},"correlation":{})",
        next(), category, quoted(a.name), pid, tid, at(a.begin), lasting(a.begin, a.end), external(a.scope),
        a.correlation);
    if (!call) print(R"(,"device":{},"context":1,"stream":{})", a.device, a.stream);
    if (a.kind == Kind::kernel) write_launch(a);
    if (a.kind == Kind::copy || a.kind == Kind::fill) print(R"(,"bytes":{})", a.bytes);
    print("}}}}");
    // An arrow from the call to what it asked for.
    print(R"({}{{"ph":"{}","cat":"ac2g","name":"ac2g","id":{},"pid":{},"tid":{},"ts":{:.3f}{}}})", next(),
          call ? "s" : "f", a.correlation, pid, tid, at(a.begin), call ? "" : R"(,"bp":"e")");
  }

  // How full the GPU is, estimated as PyTorch's profiler does: by the threads that there are, and those that fit.
  void write_launch(const DeviceActivity& a) {
    const DeviceDescription& d = r_.description;
    const auto product = [](const std::array<int32_t, 3>& n) {
      return static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[2]);
    };
    const double threads = std::max(1.0, product(a.block)), most = std::max(1, d.threads_per_multiprocessor);
    const double blocks = product(a.grid) / std::max(1, d.multiprocessors);
    double fit = most / threads;
    if (a.registers > 0) fit = std::min(fit, d.registers_per_multiprocessor / (a.registers * threads));
    if (a.shared_memory > 0)
      fit =
          std::min(fit, static_cast<double>(d.shared_memory_per_multiprocessor) / static_cast<double>(a.shared_memory));
    const double occupancy = std::min(100.0, 100 * threads * std::min(blocks, std::max(1.0, std::floor(fit))) / most);
    print(
        R"(,"grid":[{},{},{}],"block":[{},{},{}],"registers per thread":{},"shared memory":{},"blocks per SM":{:.3f},)"
        R"("warps per SM":{:.3f},"est. achieved occupancy %":{:.0f})",
        a.grid[0], a.grid[1], a.grid[2], a.block[0], a.block[1], a.block[2], a.registers, a.shared_memory, blocks,
        blocks * std::ceil(threads / std::max(1, d.warp_size)), occupancy);
  }

  const Recording& r_;
  StreamFile file_;
  int64_t begin_ = 0, pid_ = getpid();
  std::vector<std::string> quoted_;  // the recording's names
  fmt::memory_buffer line_;
  bool any_ = false;
};

}  // namespace

void write_chrome_trace(const std::filesystem::path& path, const Recording& recording) {
  ChromeTrace(path, recording).write();
}

void check_chrome_trace_path(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.ends_with(".json") && !name.ends_with(".json.gz")) {
    throw Error(ErrorCode::invalid_argument, {.where = path.string(),
                                              .what = "those who read traces know them by their names",
                                              .expected = "a name that ends in .pt.trace.json or .pt.trace.json.gz",
                                              .got = "'" + name + "'"});
  }
  check_stream_file(path, kBeginning, "the trace");
}

}  // namespace tigon
