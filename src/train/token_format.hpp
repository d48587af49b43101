// What reader and writers of token files share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tigon/core/error.hpp"

namespace tigon {

constexpr std::string_view kTokenMagic = "TIGONTOK", kTokenEnd = "TIGONEND";
constexpr int64_t kTokenHeader = 32, kTokenTail = 32;
constexpr int64_t kLargestVocab = int64_t{1} << 31;

constexpr int token_width(int64_t vocab) { return vocab <= 65536 ? 2 : 4; }

inline uint64_t little_endian(const unsigned char* p, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | p[i];
  return value;
}

inline void put_little_endian(std::string& bytes, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

[[noreturn]] inline void bad_token_file(const std::filesystem::path& path, std::string what, std::string expected = {},
                                        std::string got = {}) {
  throw Error(
      ErrorCode::invalid_argument,
      {.where = path.string(), .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

}  // namespace tigon
