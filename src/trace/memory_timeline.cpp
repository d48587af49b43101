#include "tigon/trace/memory_timeline.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "json/json.hpp"

namespace tigon {

namespace {

// "forward · layers.3 · gate_up": from the step inwards, without the step itself.
std::string place_text(const Recording& r, int32_t scope) {
  std::string text;
  for (; scope >= 0; scope = r.scopes[static_cast<size_t>(scope)].parent) {
    const RecordedScope& s = r.scopes[static_cast<size_t>(scope)];
    if (r.name(s.name) == kStepScope) break;
    text = r.text(s) + (text.empty() ? "" : " · ") + text;
  }
  return text;
}

// The names of one column, as the list of numbers that JSON has.
template <class Number>
Json column(const std::vector<MemoryTimeline::Block>& blocks, const Number& number) {
  Json::Array list;
  list.reserve(blocks.size());
  for (const MemoryTimeline::Block& block : blocks) list.emplace_back(static_cast<int64_t>(number(block)));
  return list;
}

}  // namespace

std::string_view phase_of_scope(std::string_view name) {
  if (name == "forward" || name == "loss") return name;
  if (name == "layers" || name == "embed backward") return "backward";
  if (name == "norm" || name == "update") return "update";
  return "";
}

int64_t MemoryTimeline::peak_bytes() const {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const Block& block : blocks) {
    changes.emplace_back(block.birth, block.bytes);
    if (block.death >= 0) changes.emplace_back(block.death, -block.bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, peak = 0;
  for (const auto& [time, bytes] : changes) peak = std::max(peak, live += bytes);
  return peak;
}

MemoryTimeline memory_timeline(const Recording& r) {
  MemoryTimeline t{.step = r.first_step, .names = r.names, .places = {""}};
  for (const MemoryRegion& region : r.regions) t.total_bytes = std::max(t.total_bytes, region.offset + region.bytes);
  int32_t step = -1;
  for (int32_t s = 0; s < static_cast<int32_t>(r.scopes.size()) && step < 0; ++s) {
    const RecordedScope& scope = r.scopes[static_cast<size_t>(s)];
    if (r.name(scope.name) == kStepScope && scope.index == r.first_step) step = s;
  }
  const int64_t begin =
      step < 0 ? (r.memory.empty() ? 0 : r.memory.front().time) : r.scopes[static_cast<size_t>(step)].begin;
  for (const RecordedScope& scope : r.scopes) {
    if (step < 0 || scope.parent != step || scope.end < 0) continue;
    const std::string_view phase = phase_of_scope(r.name(scope.name));
    if (phase.empty()) continue;
    if (t.phases.empty() || t.phases.back().name != phase)
      t.phases.push_back({.name = std::string(phase), .begin = scope.begin - begin});
    t.phases.back().end = scope.end - begin;
  }

  std::map<int32_t, int32_t> place_of{{-1, 0}};  // of a scope
  std::vector<int32_t> number(r.blocks.size(), -1);
  const size_t events = r.events_until(r.first_step);
  int64_t last = 0;
  for (size_t e = 0; e < events; ++e) {
    const MemoryEvent& event = r.memory[e];
    const RecordedBlock& block = r.blocks[static_cast<size_t>(event.block)];
    // What stays was there before the step. After it no two events share a time, so that their order is not lost.
    const int64_t time = block.scope < 0 ? 0 : std::max(last + 1, event.time - begin);
    last = time;
    int32_t& at = number[static_cast<size_t>(event.block)];
    if (!event.birth) {
      t.blocks[static_cast<size_t>(at)].death = time;
      continue;
    }
    const auto [known, is_new] = place_of.try_emplace(block.scope, static_cast<int32_t>(t.places.size()));
    if (is_new) t.places.push_back(place_text(r, block.scope));
    at = static_cast<int32_t>(t.blocks.size());
    t.blocks.push_back({.name = block.name,
                        .memory_class = block.memory_class,
                        .bytes = block.granted,
                        .offset = block.offset,
                        .birth = time,
                        .place = known->second});
  }
  return t;
}

std::string MemoryTimeline::json() const {
  Json root;
  root.set("format", "tigon-memory");
  root.set("version", 1);
  root.set("unit", unit);
  root.set("step", step);
  root.set("total_bytes", total_bytes);
  root.set("peak_bytes", peak_bytes());
  Json::Array classes;
  for (int c = 0; c < kMemoryClassCount; ++c) classes.emplace_back(std::string(to_string(static_cast<MemoryClass>(c))));
  root.set("classes", std::move(classes));
  root.set("names", Json::Array(names.begin(), names.end()));
  root.set("places", Json::Array(places.begin(), places.end()));
  Json::Array list;
  for (const Phase& phase : phases) {
    Json item;
    item.set("name", phase.name);
    item.set("begin", phase.begin);
    item.set("end", phase.end);
    list.push_back(std::move(item));
  }
  root.set("phases", std::move(list));
  Json columns;
  columns.set("name", column(blocks, [](const Block& b) { return b.name; }));
  columns.set("class", column(blocks, [](const Block& b) { return b.memory_class; }));
  columns.set("bytes", column(blocks, [](const Block& b) { return b.bytes; }));
  columns.set("offset", column(blocks, [](const Block& b) { return b.offset; }));
  columns.set("birth", column(blocks, [](const Block& b) { return b.birth; }));
  columns.set("death", column(blocks, [](const Block& b) { return b.death; }));
  columns.set("place", column(blocks, [](const Block& b) { return b.place; }));
  root.set("blocks", std::move(columns));
  return root.dump(false);
}

}  // namespace tigon
