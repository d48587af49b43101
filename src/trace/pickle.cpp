#include "trace/pickle.hpp"

#include <limits>

namespace tigon {

void Pickle::little_endian(uint64_t value, int bytes) {
  char text[8];
  for (int i = 0; i < bytes; ++i) text[i] = static_cast<char>(value >> (8 * i));
  put({text, static_cast<size_t>(bytes)});
}

void Pickle::integer(int64_t value) {
  using Narrow = std::numeric_limits<int32_t>;
  if (value >= Narrow::min() && value <= Narrow::max()) {
    put("J");
    little_endian(static_cast<uint64_t>(value), 4);
  } else {
    put("\x8a\x08");
    little_endian(static_cast<uint64_t>(value), 8);
  }
}

void Pickle::text(std::string_view value) {
  const auto known = texts_.find(value);
  if (known != texts_.end()) return again(known->second);
  put("X");
  little_endian(value.size(), 4);
  put(value);
  texts_.emplace(value, keep());
}

int32_t Pickle::keep() {
  put("r");
  little_endian(static_cast<uint64_t>(kept_), 4);
  return kept_++;
}

void Pickle::again(int32_t kept) {
  put("j");
  little_endian(static_cast<uint64_t>(kept), 4);
}

}  // namespace tigon
