#pragma once

#include "tigon/ops/device_trace.hpp"

namespace tigon::cuda {

// What DeviceTrace does here, by CUPTI. start_trace returns why nothing can be seen, or an empty text.
std::string start_trace();
void enter_trace(int64_t scope) noexcept;
void leave_trace() noexcept;
std::vector<DeviceActivity> finish_trace(bool& cut);

// NVTX. Throws Error where this build has none.
void push_range(const char* name);
void pop_range() noexcept;

}  // namespace tigon::cuda
