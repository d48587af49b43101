#include "tigon/model/lora.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

constexpr std::array<std::string_view, kLoraModuleCount> kNames = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                                   "gate_proj", "up_proj", "down_proj"};
constexpr int64_t kLargestRank = 4096;

[[noreturn]] void refuse(std::string what, std::string expected, std::string_view got) {
  throw Error(ErrorCode::invalid_argument, {.where = "--lora",
                                            .what = std::move(what),
                                            .expected = std::move(expected),
                                            .got = "'" + std::string(got) + "'"});
}

double number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    refuse("this is no number above 0", "such as 16", text);
  return value;
}

// The pieces of a text between separators.
template <class F>
void for_pieces(std::string_view text, char separator, const F& f) {
  while (true) {
    const size_t end = text.find(separator);
    f(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

size_t module_named(std::string_view name) {
  const auto known = std::find(kNames.begin(), kNames.end(), name);
  if (known == kNames.end()) {
    refuse("there is no such matrix in a block", fmt::format("all-linear, or some of {}", fmt::join(kNames, "+")),
           name);
  }
  return static_cast<size_t>(known - kNames.begin());
}

int64_t read_rank(std::string_view text) {
  const double rank = number(text);
  if (rank != std::floor(rank) || rank > static_cast<double>(kLargestRank))
    refuse("this is no rank", fmt::format("a whole number from 1 to {}", kLargestRank), text);
  return static_cast<int64_t>(rank);
}

void read_targets(std::string_view text, LoraConfig& lora) {
  lora.targets = {};
  if (text == "all-linear") return lora.targets.fill(true);
  for_pieces(text, '+', [&](std::string_view name) { lora.targets[module_named(name)] = true; });
}

}  // namespace

std::string_view to_string(LoraModule module) noexcept { return kNames[static_cast<size_t>(module)]; }

int64_t LoraConfig::rank_of(LoraModule module) const {
  const int64_t own = own_rank[static_cast<size_t>(module)];
  return own > 0 ? own : rank;
}

double LoraConfig::scale(LoraModule module) const {
  const double own = own_alpha[static_cast<size_t>(module)];
  const auto r = static_cast<double>(rank_of(module));
  return (own > 0 ? own : alpha) / (rslora ? std::sqrt(r) : r);
}

LoraConfig lora_from_string(std::string_view text) {
  LoraConfig lora;
  if (text == "none") return lora;
  lora.rank = 16;
  lora.targets.fill(true);
  bool alpha = false;
  for_pieces(text, ',', [&](std::string_view piece) {
    const size_t equals = piece.find('=');
    const std::string_view key = piece.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : piece.substr(equals + 1);
    if (key == "r" || key == "rank") {
      lora.rank = read_rank(value);
    } else if (key.ends_with(":r")) {
      lora.own_rank[module_named(key.substr(0, key.size() - 2))] = read_rank(value);
    } else if (key.ends_with(":alpha")) {
      lora.own_alpha[module_named(key.substr(0, key.size() - 6))] = number(value);
    } else if (key == "alpha") {
      lora.alpha = number(value);
      alpha = true;
    } else if (key == "targets") {
      read_targets(value, lora);
    } else if (key == "rslora" && equals == std::string_view::npos) {
      lora.rslora = true;
    } else if (key == "dropout" && (value == "0" || value == "0.0")) {
    } else if (key == "dropout") {
      refuse("adapters have no dropout here", "dropout=0", value);
    } else if (key == "dora" || key == "use_dora") {
      refuse("DoRA trains the lengths of rows as well, which Tigon does not", "LoRA, with or without rslora", piece);
    } else {
      refuse("this is not known of adapters",
             "r=N, alpha=N, targets=all-linear or q_proj+v_proj+…, rslora, q_proj:r=N, q_proj:alpha=N", piece);
    }
  });
  // PEFT's users write alpha = 2·r as often as alpha = r; where nobody says, the scale is 2.
  if (!alpha) lora.alpha = 2 * static_cast<double>(lora.rank);
  return lora;
}

std::string lora_to_string(const LoraConfig& lora) {
  if (!lora.any()) return "none";
  std::string targets;
  const bool all = std::all_of(lora.targets.begin(), lora.targets.end(), [](bool has) { return has; });
  for (int m = 0; m < kLoraModuleCount; ++m) {
    if (lora.targets[static_cast<size_t>(m)])
      targets += (targets.empty() ? "" : "+") + std::string(kNames[static_cast<size_t>(m)]);
  }
  std::string text = fmt::format("r={},alpha={},targets={}", lora.rank, lora.alpha, all ? "all-linear" : targets);
  for (int m = 0; m < kLoraModuleCount; ++m) {
    if (const int64_t own = lora.own_rank[static_cast<size_t>(m)]; own > 0)
      text += fmt::format(",{}:r={}", kNames[static_cast<size_t>(m)], own);
    if (const double own = lora.own_alpha[static_cast<size_t>(m)]; own > 0)
      text += fmt::format(",{}:alpha={}", kNames[static_cast<size_t>(m)], own);
  }
  return text + (lora.rslora ? ",rslora" : "");
}

}  // namespace tigon
