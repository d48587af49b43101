#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "backend/cuda/launch.cuh"

namespace tigon::cuda {

// How many clusters of a kernel a device holds at a time; asked once.
template <class Kernel>
unsigned resident_clusters(Kernel kernel, Device device, const cudaLaunchConfig_t& config) {
  static std::mutex mutex;
  static std::map<std::tuple<const void*, int, unsigned, size_t>, int> known;
  const std::lock_guard lock(mutex);
  int& clusters = known[{reinterpret_cast<const void*>(kernel), device.index, config.attrs[0].val.clusterDim.x,
                         config.dynamicSmemBytes}];
  if (clusters == 0) {
    check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "cluster");
    clusters = std::max(clusters, 1);
  }
  return static_cast<unsigned>(clusters);
}

}  // namespace tigon::cuda
