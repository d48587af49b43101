#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "tigon/core/context.hpp"

namespace tigon::cuda {

// A part of some work that is needed where *count > begin, which only the GPU knows, when it gets there.
struct Part {
  int64_t begin;
  std::function<void(const Context&)> run;  // queues it on the stream of the context that it is given
};

// All that the work of some parts depends on: two calls with the same key queue the same kernels on the same memory.
class WorkKey {
 public:
  template <class T>
  requires std::is_scalar_v<T> WorkKey& add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  WorkKey& add(const Tensor& t) {
    add(t.data).add(t.dtype).add(t.rank);
    for (int d = 0; d < t.rank; ++d) add(t.sizes[d]).add(t.strides[d]);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Queues the parts one after the other so that the GPU skips those which are not needed, while the host waits for
// nothing. Parts are recorded and run later: what they take from the context's memory must not go back to a system
// before run_needed returns. What was recorded is kept, and queued again when a call with the same key comes. A driver
// that cannot skip runs all of them, so a part that is not needed must do no harm.
void run_needed(const Context& ctx, const int64_t* count, const std::vector<Part>& parts, const WorkKey& key);

}  // namespace tigon::cuda
