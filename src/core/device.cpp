#include "tigon/core/device.hpp"

#include <charconv>

#include "tigon/core/error.hpp"

namespace tigon {

std::string to_string(Device device) {
  if (device.kind == DeviceKind::cpu) return "cpu";
  if (device.assumed()) return "an assumed GPU";
  return "cuda:" + std::to_string(device.index);
}

Device device_from_string(std::string_view text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceKind::cuda, 0};
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const std::string_view digits = text.substr(kPrefix.size());
    int32_t index = -1;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (failure == std::errc{} && end == digits.data() + digits.size() && index >= 0) {
      return {DeviceKind::cuda, index};
    }
  }
  throw Error(ErrorCode::invalid_argument, {.where = "device",
                                            .what = "there is no such device",
                                            .expected = "cpu, cuda or cuda:N",
                                            .got = "'" + std::string(text) + "'"});
}

}  // namespace tigon
