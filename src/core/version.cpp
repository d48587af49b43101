#include "tigon/core/version.hpp"

namespace tigon {

const char* version() noexcept { return TIGON_VERSION; }

}  // namespace tigon
