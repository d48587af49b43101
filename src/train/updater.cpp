#include "tigon/train/updater.hpp"

#include <array>
#include <utility>

#include "tigon/core/error.hpp"

namespace tigon {

static constexpr std::array<std::pair<std::string_view, Updater>, 4> kNames = {
    {{"auto", Updater::automatic}, {"cpu", Updater::cpu}, {"gpu", Updater::gpu}, {"both", Updater::both}}};

Updater updater_from_string(std::string_view text) {
  for (const auto& [name, updater] : kNames) {
    if (text == name) return updater;
  }
  throw Error(ErrorCode::invalid_argument, {.where = "--update",
                                            .what = "nobody of that name updates",
                                            .expected = "auto, cpu, gpu or both",
                                            .got = "'" + std::string(text) + "'"});
}

std::string_view to_string(Updater updater) noexcept { return kNames[static_cast<size_t>(updater)].first; }

Updater settled_updater(Updater asked, const Homes& homes, Device device) {
  const bool host_may = homes.states == Home::host && homes.gradients == Home::host;
  if (asked == Updater::automatic) {
    if (!host_may) return Updater::gpu;
    return device.kind == DeviceKind::cpu ? Updater::cpu : Updater::both;
  }
  if (host_updates(asked) && !host_may) {
    throw Error(ErrorCode::invalid_argument, {.where = "--update",
                                              .what = "the host updates only what is there",
                                              .expected = "states=host and gradients=host in --offload",
                                              .got = to_string(homes),
                                              .fix = "Add them, or use --update gpu."});
  }
  return asked;
}

}  // namespace tigon
