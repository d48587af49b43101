#include "tigon/train/homes.hpp"

#include <array>
#include <utility>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr Homes kOptimizer{.gradients = Home::host, .states = Home::host};
constexpr Homes kAll{.weights = Home::host, .gradients = Home::host, .states = Home::host};
constexpr Homes kAllAndInputs{
    .weights = Home::host, .gradients = Home::host, .states = Home::host, .layer_inputs = Home::host};
constexpr std::array<std::pair<std::string_view, Homes>, 4> kPresets = {
    {{"none", {}}, {"optimizer", kOptimizer}, {"all", kAll}, {"all+checkpoints", kAllAndInputs}}};
constexpr std::array<std::pair<std::string_view, Home Homes::*>, 4> kKinds = {{{"weights", &Homes::weights},
                                                                               {"gradients", &Homes::gradients},
                                                                               {"states", &Homes::states},
                                                                               {"checkpoints", &Homes::layer_inputs}}};

[[noreturn]] void refuse(std::string_view what, std::string_view got) {
  throw Error(ErrorCode::invalid_argument,
              {.where = "--offload",
               .what = std::string(what),
               .expected = "none, optimizer, all or all+checkpoints, and some of weights=, gradients=, states= and "
                           "checkpoints=, each with device, host or nvme",
               .got = "'" + std::string(got) + "'"});
}

Home home_from_string(std::string_view text) {
  if (text == "device") return Home::device;
  if (text == "host") return Home::host;
  if (text == "nvme") return Home::nvme;
  refuse("there is no such home", text);
}

}  // namespace

std::string_view to_string(Home home) noexcept {
  switch (home) {
    case Home::device: return "device";
    case Home::host: return "host";
    case Home::nvme: return "nvme";
  }
  return "";
}

Homes homes_from_string(std::string_view text) {
  Homes homes;
  for (bool first = true; first || !text.empty(); first = false) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(item.size() + (item.size() < text.size() ? 1 : 0));
    const size_t equals = item.find('=');
    bool known = false;
    for (const auto& [name, preset] : kPresets) {
      if (!first || item != name) continue;
      homes = preset;
      known = true;
    }
    for (const auto& [name, member] : kKinds) {
      if (equals == std::string_view::npos || item.substr(0, equals) != name) continue;
      homes.*member = home_from_string(item.substr(equals + 1));
      known = true;
    }
    if (!known) refuse("this says no home", item);
  }
  return homes;
}

std::string to_string(const Homes& homes) {
  for (const auto& [name, preset] : kPresets) {
    if (homes == preset) return std::string(name);
  }
  std::string text;
  for (const auto& [name, member] : kKinds) {
    if (homes.*member != Home::device)
      text += (text.empty() ? "" : ",") + std::string(name) + "=" + std::string(to_string(homes.*member));
  }
  return text;
}

Order order_from_string(std::string_view text) {
  if (text == "batches") return Order::batches;
  if (text == "layers") return Order::layers;
  throw Error(ErrorCode::invalid_argument, {.where = "--order",
                                            .what = "there is no such order",
                                            .expected = "batches or layers",
                                            .got = "'" + std::string(text) + "'"});
}

std::string_view to_string(Order order) noexcept { return order == Order::batches ? "batches" : "layers"; }

}  // namespace tigon
