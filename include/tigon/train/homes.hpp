#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tigon {

// Where something stays between uses. `host` is memory of the machine; on a CPU it is a second block of the same.
// `nvme` is a file on a disk.
enum class Home : uint8_t { device, host, nvme };
std::string_view to_string(Home home) noexcept;

// The home of each kind of thing that a run keeps.
struct Homes {
  Home weights = Home::device;
  Home gradients = Home::device;
  Home states = Home::device;        // master copies and the optimizer's moments
  Home layer_inputs = Home::device;  // each layer's input: what stays of a layer for backward under recompute "block"

  bool any_away() const { return *this != Homes{}; }
  bool any_on_disk() const {
    return weights == Home::nvme || gradients == Home::nvme || states == Home::nvme || layer_inputs == Home::nvme;
  }
  friend bool operator==(const Homes&, const Homes&) = default;
};

// "none"; "optimizer": states and gradients on the host; "all": weights too; "all+checkpoints": layer inputs as well.
// Or kind by kind, "weights=host,states=nvme", also after one of these: "all,states=nvme". What is not named stays on
// the device.
Homes homes_from_string(std::string_view text);
std::string to_string(const Homes& homes);

// How a step goes through several micro-batches: each through all layers, or each layer with all of them. By layers,
// weights move and gradients become whole once a step, however many micro-batches there are.
enum class Order : uint8_t { batches, layers };
Order order_from_string(std::string_view text);
std::string_view to_string(Order order) noexcept;

}  // namespace tigon
