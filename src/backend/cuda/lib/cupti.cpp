// CUPTI, opened at run time: a machine without it trains all the same. It is asked what ran on the GPU, which call of
// the host asked for it, and which of our scopes that call was made in: a scope's number is pushed as an external id,
// and every call of the thread gets a record that joins the two. CUPTI gives records of a thread of its own.
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "backend/cuda/lib/tracing.hpp"

// One that we link, in whose folder CUPTI lies where NVIDIA's libraries are packages.
extern "C" size_t cublasLtGetVersion();

namespace tigon::cuda {

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr size_t kMostRecords = size_t{1} << 20;

template <class Function>
void find(void* library, Function*& function, const char* name, std::string& missing) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr && missing.empty()) missing = name;
}

void* open_library(std::string& fault) {
  std::vector<std::string> names;
  if (const char* named = std::getenv("TIGON_CUPTI_LIBRARY"); named != nullptr) {
    names = {named};
  } else {
    names = {"libcupti.so.13"};
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&cublasLtGetVersion), &info) != 0 && info.dli_fname != nullptr) {
      const std::string path = info.dli_fname, folder = path.substr(0, path.rfind('/') + 1);
      for (const char* there : {"", "../extras/CUPTI/lib64/", "../../cuda_cupti/lib/"})
        names.push_back(folder + there + "libcupti.so.13");
    }
  }
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    if (fault.empty()) fault = dlerror();
  }
  return nullptr;
}

struct Cupti {
  Cupti() {
    void* library = open_library(fault);
    if (library == nullptr) return;
    fault.clear();
    std::string missing;
#define TIGON_FIND(name) find(library, name, "cupti" #name, missing)
    TIGON_FIND(ActivityRegisterCallbacks);
    TIGON_FIND(ActivityEnable);
    TIGON_FIND(ActivityDisable);
    TIGON_FIND(ActivityFlushAll);
    TIGON_FIND(ActivityGetNextRecord);
    TIGON_FIND(ActivityPushExternalCorrelationId);
    TIGON_FIND(ActivityPopExternalCorrelationId);
    TIGON_FIND(GetTimestamp);
    TIGON_FIND(GetCallbackName);
    TIGON_FIND(GetResultString);
#undef TIGON_FIND
    if (!missing.empty()) fault = "it lacks " + missing;
  }

  decltype(&cuptiActivityRegisterCallbacks) ActivityRegisterCallbacks = nullptr;
  decltype(&cuptiActivityEnable) ActivityEnable = nullptr;
  decltype(&cuptiActivityDisable) ActivityDisable = nullptr;
  decltype(&cuptiActivityFlushAll) ActivityFlushAll = nullptr;
  decltype(&cuptiActivityGetNextRecord) ActivityGetNextRecord = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) ActivityPushExternalCorrelationId = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) ActivityPopExternalCorrelationId = nullptr;
  decltype(&cuptiGetTimestamp) GetTimestamp = nullptr;
  decltype(&cuptiGetCallbackName) GetCallbackName = nullptr;
  decltype(&cuptiGetResultString) GetResultString = nullptr;
  std::string fault;
};

const Cupti& cupti() {
  static const Cupti opened;
  return opened;
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};

// What was reported since the last start.
struct Records {
  std::mutex mutex;
  std::vector<DeviceActivity> activities;
  std::unordered_map<uint32_t, int64_t> scopes;  // of a call, by its correlation
  int64_t ahead = 0;                             // of the steady clock, CUPTI's
  bool taking = false, cut = false;
};

Records& records() {
  static Records all;
  return all;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return "Memcpy HtoH";
    default: return "Memcpy";
  }
}

std::string readable(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

template <class Record>
DeviceActivity activity_of(const Record& record, DeviceActivity::Kind kind, std::string name) {
  return {.kind = kind,
          .name = std::move(name),
          .begin = static_cast<int64_t>(record.start),
          .end = static_cast<int64_t>(record.end),
          .correlation = record.correlationId};
}

template <class Record>
DeviceActivity on_device(const Record& record, DeviceActivity::Kind kind, std::string name) {
  DeviceActivity activity = activity_of(record, kind, std::move(name));
  activity.device = static_cast<int>(record.deviceId);
  activity.stream = record.streamId;
  return activity;
}

// Of all calls those that ask the GPU for something, or wait for it.
bool matters(std::string_view call) {
  for (const char* part : {"Launch", "Memcpy", "Memset", "Synchronize"}) {
    if (call.find(part) != std::string_view::npos) return true;
  }
  return false;
}

void take(Records& r, const CUpti_Activity* record) {
  if (!r.taking) return;
  if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
    const auto& e = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
    r.scopes[e.correlationId] = static_cast<int64_t>(e.externalId);
    return;
  }
  if (r.activities.size() >= kMostRecords) {
    r.cut = true;
    return;
  }
  using Kind = DeviceActivity::Kind;
  if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME || record->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
    const auto& c = *reinterpret_cast<const CUpti_ActivityAPI*>(record);
    const bool driver = record->kind == CUPTI_ACTIVITY_KIND_DRIVER;
    const char* name = nullptr;
    (void)cupti().GetCallbackName(driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, c.cbid, &name);
    if (name != nullptr && matters(name)) r.activities.push_back(activity_of(c, Kind::call, name));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& k = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    DeviceActivity& a = r.activities.emplace_back(on_device(k, Kind::kernel, readable(k.name)));
    a.grid = {k.gridX, k.gridY, k.gridZ};
    a.block = {k.blockX, k.blockY, k.blockZ};
    a.registers = k.registersPerThread;
    a.shared_memory = int64_t{k.staticSharedMemory} + k.dynamicSharedMemory;
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& m = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    r.activities.emplace_back(on_device(m, Kind::copy, copy_name(m.copyKind))).bytes = static_cast<int64_t>(m.bytes);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& m = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    r.activities.emplace_back(on_device(m, Kind::fill, "Memset")).bytes = static_cast<int64_t>(m.bytes);
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t bytes) {
  try {
    Records& r = records();
    const std::lock_guard lock(r.mutex);
    CUpti_Activity* record = nullptr;
    while (cupti().ActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS) take(r, record);
  } catch (const std::exception&) {  // no memory: the caller is C
    records().cut = true;
  }
  std::free(buffer);
}

int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string without(const std::string& why) {
  return "no CUPTI: kernels are not in the trace, scopes are (" + why + ")";
}

}  // namespace

std::string start_trace() {
  const Cupti& c = cupti();
  if (!c.fault.empty()) return without(c.fault);
  const auto reason = [&](CUptiResult result) {
    const char* text = nullptr;
    (void)c.GetResultString(result, &text);
    return without(text != nullptr ? text : "it refused to start");
  };
  if (const CUptiResult result = c.ActivityRegisterCallbacks(give_buffer, take_buffer); result != CUPTI_SUCCESS)
    return reason(result);
  Records& r = records();
  {
    const std::lock_guard lock(r.mutex);
    r.activities.clear();
    r.scopes.clear();
    r.cut = false;
    r.taking = true;
    uint64_t theirs = 0;
    (void)c.GetTimestamp(&theirs);
    r.ahead = static_cast<int64_t>(theirs) - steady_now();
  }
  for (const CUpti_ActivityKind kind : kKinds) {
    const CUptiResult result = c.ActivityEnable(kind);
    if (result == CUPTI_SUCCESS) continue;
    bool cut = false;
    (void)finish_trace(cut);
    return reason(result);
  }
  return "";
}

void enter_trace(int64_t scope) noexcept {
  (void)cupti().ActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                                                  static_cast<uint64_t>(scope));
}

void leave_trace() noexcept {
  uint64_t last = 0;
  (void)cupti().ActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

std::vector<DeviceActivity> finish_trace(bool& cut) {
  const Cupti& c = cupti();
  (void)c.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const CUpti_ActivityKind kind : kKinds) (void)c.ActivityDisable(kind);
  Records& r = records();
  const std::lock_guard lock(r.mutex);
  r.taking = false;
  cut = r.cut;
  std::unordered_set<int64_t> ran;  // by what call
  for (const DeviceActivity& a : r.activities) {
    if (a.kind != DeviceActivity::Kind::call) ran.insert(a.correlation);
  }
  std::unordered_set<int64_t> called;
  std::vector<DeviceActivity> list;
  for (DeviceActivity& a : r.activities) {
    const auto scope = r.scopes.find(static_cast<uint32_t>(a.correlation));
    if (scope == r.scopes.end()) continue;  // nobody watches whoever asked for it
    if (a.kind == DeviceActivity::Kind::call) {
      // The runtime's call and the driver's within it may both be there.
      const bool waits = a.name.find("Synchronize") != std::string::npos;
      if ((!waits && !ran.contains(a.correlation)) || !called.insert(a.correlation).second) continue;
    }
    a.scope = scope->second;
    a.begin -= r.ahead;
    a.end -= r.ahead;
    list.push_back(std::move(a));
  }
  r.activities = {};
  r.scopes = {};
  return list;
}

}  // namespace tigon::cuda
