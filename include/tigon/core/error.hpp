#pragma once

#include <stdexcept>
#include <string>

namespace tigon {

// What went wrong, as a caller can act on it. The C ABI returns these numbers.
enum class ErrorCode : int {
  ok = 0,
  invalid_argument = 1,  // a size, stride, flag or pointer the op cannot work with
  unsupported = 2,       // understood, but this build or device cannot do it
  out_of_memory = 3,
  io = 4,
  internal = 5,  // a broken promise inside Tigon: please report it
};

// The one exception type of the project. Every message says where it happened, what is wrong, what was expected,
// what was found, and what to do; leave a part empty when it adds nothing.
class Error : public std::runtime_error {
 public:
  struct Parts {
    std::string where;
    std::string what;
    std::string expected = {};
    std::string got = {};
    std::string fix = {};
  };

  Error(ErrorCode code, const Parts& parts);

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// A short name such as "invalid argument".
const char* to_string(ErrorCode code) noexcept;

}  // namespace tigon
