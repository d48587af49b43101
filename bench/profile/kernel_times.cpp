// A library that CUDA loads into a process (CUDA_INJECTION64_PATH) and that writes when each kernel, copy and fill ran
// on the GPU: lines of begin ns, end ns, grid or bytes, name, separated by tabs, into the file KERNEL_TIMES names.
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

std::FILE* out = nullptr;

constexpr size_t kBufferBytes = 8 << 20;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;
}

template <class Record>
void write(const Record& r, const char* what, const char* name) {
  std::fprintf(out, "%llu\t%llu\t%s\t%s\n", static_cast<unsigned long long>(r.start),
               static_cast<unsigned long long>(r.end), what, name);
}

void write(const CUpti_Activity* record) {
  char what[64];
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    std::snprintf(what, sizeof what, "%dx%dx%d", r.gridX, r.gridY, r.gridZ);
    write(r, what, r.name);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
    std::snprintf(what, sizeof what, "%llu", static_cast<unsigned long long>(r.bytes));
    write(r, what, "memcpy");
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& r = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    std::snprintf(what, sizeof what, "%llu", static_cast<unsigned long long>(r.bytes));
    write(r, what, "memset");
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS) write(record);
  std::free(buffer);
}

void finish() {
  (void)cuptiActivityFlushAll(1);
  (void)std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  const char* name = std::getenv("KERNEL_TIMES");
  out = std::fopen(name != nullptr ? name : "kernel_times.tsv", "w");
  if (out == nullptr) return 0;
  (void)cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    (void)cuptiActivityEnable(kind);
  }
  (void)std::atexit(finish);
  return 1;
}
