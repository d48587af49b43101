#include "ops/cuda_plugin.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
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

// The table of an opened library; null, with the reason in `fault`, where it is none of this build's. A library of
// another build has functions in other places and arguments of other sizes.
const Backend* table_of(void* library, const std::string& path, std::string& fault) {
  const auto identity = reinterpret_cast<BackendIdentity (*)()>(dlsym(library, "tigon_cuda_identity"));
  const auto table = reinterpret_cast<const Backend* (*)()>(dlsym(library, "tigon_cuda_backend"));
  if (table == nullptr) {
    fault = path + " is no CUDA backend of Tigon: it has no tigon_cuda_backend";
  } else if (identity == nullptr) {
    fault = path + " is of an older build: it does not say its version";
  } else {
    const BackendIdentity theirs = identity(), ours = backend_identity();
    const bool same_version = std::strcmp(theirs.version, ours.version) == 0;
    if (same_version && theirs.table_bytes == ours.table_bytes && theirs.layout == ours.layout) return table();
    fault = path + " is of another build" +
            (same_version ? " of version " + std::string(ours.version)
                          : ": its version is " + std::string(theirs.version) + ", expected " + ours.version);
  }
  return nullptr;
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
      const Backend* table = table_of(library, path, fault);
      if (table != nullptr) return table;  // the library stays open for the life of the process
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
                                       .fix = "Build everything with ./scripts/build cuda on a machine with the CUDA "
                                              "toolkit, or run on the CPU."});
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
