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

Updater settled_updater(Updater asked, const Homes& homes, Device device, Optimizer optimizer) {
  const bool products = is_low_rank(optimizer);
  if (products && asked == Updater::both) {
    throw Error(ErrorCode::unsupported,
                {.where = "--update both",
                 .what = "an update of low rank has products, whose bits would depend on who takes which matrix",
                 .expected = "--update cpu or gpu with --optimizer " + std::string(to_string(optimizer))});
  }
  const bool host_may = homes.states != Home::device && homes.gradients != Home::device;
  const bool disk = homes.states == Home::nvme || homes.gradients == Home::nvme || homes.weights == Home::nvme;
  if (disk && (!host_may || (asked != Updater::automatic && device_updates(asked)))) {
    throw Error(ErrorCode::unsupported, {.where = "--offload",
                                         .what = "what is on the disk is updated by the host",
                                         .expected = "states and gradients away from the device, and --update cpu",
                                         .got = to_string(homes) + ", --update " + std::string(to_string(asked))});
  }
  if (asked == Updater::automatic) {
    if (!host_may) return Updater::gpu;
    if (device.kind == DeviceKind::cpu || disk) return Updater::cpu;
    return products ? Updater::gpu : Updater::both;
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
