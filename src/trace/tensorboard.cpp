// Records as TFRecord frames them: the length, a checksum of it, the bytes, a checksum of them. Each is an Event of
// TensorFlow's event.proto, of which these few fields are written:
//   Event    1 wall_time (double)  2 step  3 file_version (text)  5 summary  7 session_log
//   Summary  1 value, repeated: 1 tag  2 simple_value (float)
//   SessionLog  1 status: 1 is START
#include "tigon/trace/tensorboard.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon {

namespace {

// CRC-32C, which zlib does not have: its polynomial is another one.
uint32_t crc32c(std::string_view bytes) {
  static const auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return crc ^ 0xffffffffu;
}

// Turned and shifted, so that a checksum of bytes that hold a checksum is a good one too.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <class Number>
void add_bytes(std::string& out, Number value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void add_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// Protocol Buffers: a field's number and kind, then its value.
enum : uint64_t { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };
void add_field(std::string& out, uint64_t number, uint64_t kind) { add_varint(out, number << 3 | kind); }
void add_text(std::string& out, uint64_t number, std::string_view value) {
  add_field(out, number, kBytes);
  add_varint(out, value.size());
  out += value;
}
void add_integer(std::string& out, uint64_t number, int64_t value) {
  add_field(out, number, kVarint);
  add_varint(out, static_cast<uint64_t>(value));
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_of(int64_t step) {
  std::string event;
  add_field(event, 1, kDouble);
  add_bytes(event, wall_time());
  add_integer(event, 2, step);
  return event;
}

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorCode::io, {.where = path.string(),
                              .what = std::string(what) + ": " + std::strerror(errno),
                              .fix = "Choose a folder that is writable and has room."});
}

}  // namespace

TensorboardFile::TensorboardFile(const std::filesystem::path& folder, int64_t step) {
  make_folder(folder);
  char host[256] = "localhost";
  (void)gethostname(host, sizeof host - 1);
  // TensorBoard reads the files of a folder in the order of their names, so of their times.
  const std::string name = "events.out.tfevents." + std::to_string(static_cast<int64_t>(wall_time())) + "." + host +
                           "." + std::to_string(getpid());
  for (int i = 0; file_ < 0; ++i) {
    path_ = folder / (name + "." + std::to_string(i));
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file_ < 0 && errno != EEXIST) fail(path_, "cannot be made");
  }
  std::string version = event_of(0), start = event_of(step + 1), session;
  add_text(version, 3, "brain.Event:2");
  write_record(version);
  add_integer(session, 1, 1);
  add_text(start, 7, session);
  write_record(start);
}

TensorboardFile::~TensorboardFile() { (void)::close(file_); }

void TensorboardFile::add(int64_t step, const std::vector<Scalar>& scalars) {
  std::string event = event_of(step), summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    add_text(value, 1, scalar.tag);
    add_field(value, 2, kFloat);
    add_bytes(value, static_cast<float>(scalar.value));
    add_text(summary, 1, value);
  }
  add_text(event, 5, summary);
  write_record(event);
}

void TensorboardFile::write_record(std::string_view event) {
  std::string record, length;
  add_bytes(length, static_cast<uint64_t>(event.size()));
  record = length;
  add_bytes(record, masked(crc32c(length)));
  record += event;
  add_bytes(record, masked(crc32c(event)));
  // In one piece: a reader that comes in between finds all of it, or a cut record, which it reads again later.
  for (std::string_view rest = record; !rest.empty();) {
    const ssize_t n = ::write(file_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path_, "cannot be written");
    rest.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace tigon
