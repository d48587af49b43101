#include "ops/cuda_plugin.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tigon/core/error.hpp"

namespace tigon::ops {

namespace fs = std::filesystem;

namespace {

// With its slash. Of a program dladdr knows only argv[0], which may be a link (build/tigon) or a bare name.
std::string folder_of_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&cuda_plugin), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string named = info.dli_fname;
  std::error_code failed;
  const fs::path path = fs::canonical(named.find('/') == std::string::npos ? "/proc/self/exe" : named, failed);
  return failed ? "" : (path.parent_path() / "").string();
}

const Backend* open_plugin() {
  const char* named = std::getenv("TIGON_CUDA_LIBRARY");
  std::vector<std::string> candidates;
  if (named != nullptr) {
    candidates = {named};
  } else {
    const std::string folder = folder_of_this_library();
    if (!folder.empty()) candidates = {folder + "libtigon_cuda.so", folder + "../lib/libtigon_cuda.so"};
    candidates.emplace_back("libtigon_cuda.so");
  }
  std::string faults;  // of what is there; most machines have no such file, which is none
  for (const std::string& path : candidates) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string fault;
    if (library == nullptr) {
      fault = dlerror();
      if (fault == path + ": cannot open shared object file: No such file or directory") continue;
    } else {
      using Entry = const Backend* (*)();
      const auto entry = reinterpret_cast<Entry>(dlsym(library, "tigon_cuda_backend"));
      if (entry != nullptr) return entry();  // stays open for the life of the process
      fault = path + " has no tigon_cuda_backend";
      (void)dlclose(library);
    }
    faults += (faults.empty() ? "" : "; ") + fault;
  }
  std::string what = "the CUDA backend could not be opened (" + faults + ")";
  if (faults.empty()) {
    what = named != nullptr ? "there is no file " + candidates[0] + ", which TIGON_CUDA_LIBRARY names"
                            : "there is no CUDA backend, libtigon_cuda.so, beside this program or library";
  }
  throw Error(ErrorCode::unsupported, {.where = "device cuda",
                                       .what = what,
                                       .fix = "Build it with ./scripts/build cuda on a machine with the CUDA toolkit, "
                                              "or run on the CPU."});
}

}  // namespace

const Backend& cuda_plugin(Device device) {
  static const Backend* const plugin = open_plugin();  // a failure throws and is tried again next time
  if (!device.assumed()) {
    static const bool usable = (plugin->services->require_device(), true);  // so it is here
    (void)usable;
  }
  return *plugin;
}

}  // namespace tigon::ops
