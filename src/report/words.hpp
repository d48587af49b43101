#pragma once

#include <cstdint>
#include <string>

#include "tigon/memory/ledger.hpp"

namespace tigon::report {

// "24 GiB", "1.50 GiB".
inline std::string bytes_text(int64_t bytes) {
  std::string text = human_bytes(bytes);
  if (const size_t zeros = text.find(".00 "); zeros != std::string::npos) text.erase(zeros, 3);
  return text;
}

}  // namespace tigon::report
