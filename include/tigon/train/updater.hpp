#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tigon/core/device.hpp"
#include "tigon/train/homes.hpp"
#include "tigon/train/optimizer.hpp"

namespace tigon {

// Who updates parameters of which something is away from the device: the host's cores, where states and gradients are
// there; the device, through which a few pieces at a time pass; or both, each taking the next piece when it is free.
// The bits are the same.
enum class Updater : uint8_t { automatic, cpu, gpu, both };
Updater updater_from_string(std::string_view text);
std::string_view to_string(Updater updater) noexcept;

// What `asked` comes to: of `automatic` both on a GPU where the host may, or with an optimizer of low rank, which has
// products, the device; else whoever can. Throws Error where the host is to update what is not there.
Updater settled_updater(Updater asked, const Homes& homes, Device device, Optimizer optimizer = Optimizer::adamw);

inline bool host_updates(Updater updater) { return updater == Updater::cpu || updater == Updater::both; }
inline bool device_updates(Updater updater) { return updater == Updater::gpu || updater == Updater::both; }

}  // namespace tigon
