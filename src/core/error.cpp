#include "tigon/core/error.hpp"

namespace tigon {

namespace {

std::string message(const Error::Parts& parts) {
  std::string text = parts.where.empty() ? parts.what : parts.where + ": " + parts.what;
  if (!parts.expected.empty()) text += "; expected " + parts.expected;
  if (!parts.got.empty()) text += ", got " + parts.got;
  if (!parts.fix.empty()) text += ". " + parts.fix;
  return text;
}

}  // namespace

Error::Error(ErrorCode code, const Parts& parts) : std::runtime_error(message(parts)), code_(code) {}

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok: return "ok";
    case ErrorCode::invalid_argument: return "invalid argument";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::out_of_memory: return "out of memory";
    case ErrorCode::io: return "input/output error";
    case ErrorCode::internal: return "internal error";
  }
  return "unknown error";
}

}  // namespace tigon
