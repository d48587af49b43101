// What the page does with such a file, and so what must hold: it knows the pickle's opcodes up to protocol 4 but for
// the largest; the blocks of a segment lie end to end; what was alive at any time is found by taking the events back,
// from the last to the first, out of the blocks that `segments` says are alive at the end; a free is a request and its
// completion; and where any event has a category, one of them must be "unknown". The buffers of tokens are, always.
#include "tigon/trace/snapshot.hpp"

#include <algorithm>
#include <map>

#include "trace/pickle.hpp"

namespace tigon {

namespace {

class Snapshot {
 public:
  Snapshot(const std::filesystem::path& path, const Recording& recording)
      : recording_(recording),
        events_(recording.events_until(recording.first_step)),
        frames_of_(recording.blocks.size(), -1),
        file_(path),
        pickle_(file_) {}

  void write() {
    Pickle::Items root = pickle_.dictionary();
    root.item("segments");
    write_segments();
    root.item("device_traces");
    // Devices are numbered: those before ours have nothing to show.
    Pickle::Items traces = pickle_.list();
    for (int device = 0; device < recording_.device.index; ++device) {
      traces.item();
      pickle_.list().end();
    }
    traces.item();
    write_events();
    traces.end();
    root.item("allocator_settings");
    pickle_.dictionary().end();
    root.end();
    pickle_.end();
    file_.commit();
  }

 private:
  const RecordedBlock& block(int32_t number) const { return recording_.blocks[static_cast<size_t>(number)]; }
  int64_t address(int64_t offset) const { return static_cast<int64_t>(recording_.address) + offset; }

  // What the page calls unknown is what we call other.
  static std::string_view category(MemoryClass memory_class) {
    return memory_class == MemoryClass::other ? "unknown" : to_string(memory_class);
  }

  // The blocks alive at the end, in the order of their places.
  std::vector<int32_t> alive() const {
    std::vector<bool> lives(recording_.blocks.size());
    for (size_t e = 0; e < events_; ++e) {
      const MemoryEvent& event = recording_.memory[e];
      lives[static_cast<size_t>(event.block)] = event.birth;
    }
    std::vector<int32_t> list;
    for (int32_t b = 0; b < static_cast<int32_t>(lives.size()); ++b) {
      if (lives[static_cast<size_t>(b)]) list.push_back(b);
    }
    std::sort(list.begin(), list.end(), [&](int32_t a, int32_t b) { return block(a).offset < block(b).offset; });
    return list;
  }

  void write_segments() {
    const std::vector<int32_t> living = alive();
    Pickle::Items segments = pickle_.list();
    for (const MemoryRegion& region : recording_.regions) {
      if (region.bytes == 0) continue;
      const int64_t end = region.offset + region.bytes;
      int64_t taken = 0, asked = 0;
      std::vector<int32_t> inside;
      for (const int32_t b : living) {
        if (block(b).offset < region.offset || block(b).offset >= end) continue;
        inside.push_back(b);
        taken += block(b).granted;
        asked += block(b).bytes;
      }
      segments.item();
      Pickle::Items segment = pickle_.dictionary();
      segment.integer("device", recording_.device.index);
      segment.integer("address", address(region.offset));
      segment.integer("total_size", region.bytes);
      segment.integer("allocated_size", taken);
      segment.integer("active_size", taken);
      segment.integer("requested_size", asked);
      segment.integer("stream", 0);
      segment.text("segment_type", "large");
      segment.item("is_expandable");
      pickle_.boolean(false);
      segment.item("frames");
      write_segment_frames(region);
      segment.item("blocks");
      Pickle::Items blocks = pickle_.list();
      int64_t at = region.offset;
      const auto gap_to = [&](int64_t next) {
        if (next > at) write_block(blocks, at, next - at, 0, "inactive", -1);
        at = next;
      };
      for (const int32_t b : inside) {
        gap_to(block(b).offset);
        write_block(blocks, at, block(b).granted, block(b).bytes, "active_allocated", b);
        at += block(b).granted;
      }
      gap_to(end);
      blocks.end();
      segment.end();
    }
    segments.end();
  }

  void write_block(Pickle::Items& blocks, int64_t offset, int64_t bytes, int64_t asked, const char* state, int32_t b) {
    blocks.item();
    Pickle::Items entry = pickle_.dictionary();
    entry.integer("address", address(offset));
    entry.integer("size", bytes);
    entry.integer("requested_size", asked);
    entry.text("state", state);
    entry.item("frames");
    b < 0 ? pickle_.list().end() : write_frames(b);
    entry.end();
  }

  void write_events() {
    Pickle::Items events = pickle_.list();
    const int64_t begin = recording_.memory.empty() ? 0 : recording_.memory.front().time;
    for (const MemoryRegion& region : recording_.regions) {
      if (region.bytes == 0) continue;
      Pickle::Items event = begin_event(events, "segment_alloc", region.offset, region.bytes, begin);
      event.item("frames");
      write_segment_frames(region);
      event.end();
    }
    const auto write_event = [&](const MemoryEvent& event, const char* action) {
      const RecordedBlock& b = block(event.block);
      Pickle::Items items = begin_event(events, action, b.offset, b.granted, event.time);
      items.text("category", category(b.memory_class));
      items.item("frames");
      write_frames(event.block);
      items.end();
    };
    for (size_t e = 0; e < events_; ++e) {
      const MemoryEvent& event = recording_.memory[e];
      if (event.birth) {
        write_event(event, "alloc");
      } else {
        write_event(event, "free_requested");
        write_event(event, "free_completed");
      }
    }
    events.end();
  }

  Pickle::Items begin_event(Pickle::Items& events, const char* action, int64_t offset, int64_t bytes, int64_t time) {
    events.item();
    Pickle::Items event = pickle_.dictionary();
    event.text("action", action);
    event.integer("addr", address(offset));
    event.integer("size", bytes);
    event.integer("stream", 0);
    event.integer("time_us", time / 1000);
    return event;
  }

  void write_frame(Pickle::Items& frames, std::string_view file, int64_t line, std::string_view name) {
    frames.item();
    Pickle::Items frame = pickle_.dictionary();
    frame.text("filename", file);
    frame.integer("line", line);
    frame.text("name", name);
    frame.end();
  }

  void write_segment_frames(const MemoryRegion& region) {
    Pickle::Items frames = pickle_.list();
    write_frame(frames, "memory", 0, region.name);
    frames.end();
  }

  // Innermost first: the tensor, then op, stage, layer, direction and step.
  void write_frames(int32_t b) {
    int32_t& kept = frames_of_[static_cast<size_t>(b)];
    if (kept >= 0) return pickle_.again(kept);
    Pickle::Items frames = pickle_.list();
    write_frame(frames, "tensor", 0, recording_.name(block(b).name));
    if (block(b).scope < 0) write_frame(frames, "memory", 0, "stays from step to step");
    for (int32_t s = block(b).scope; s >= 0;) {
      const RecordedScope& scope = recording_.scopes[static_cast<size_t>(s)];
      write_frame(frames, "scope", std::max<int64_t>(0, scope.index), recording_.text(scope));
      s = scope.parent;
    }
    frames.end();
    kept = pickle_.keep();
  }

  const Recording& recording_;
  size_t events_;
  std::vector<int32_t> frames_of_;  // of each block, by the pickle's number; negative: not written yet
  StreamFile file_;
  Pickle pickle_;
};

}  // namespace

void write_snapshot(const std::filesystem::path& path, const Recording& recording) {
  Snapshot(path, recording).write();
}

void check_snapshot_path(const std::filesystem::path& path) {
  using namespace std::string_view_literals;
  check_stream_file(path, "\x80\x02}(X\x08\0\0\0segments"sv, "the snapshot");
}

}  // namespace tigon
