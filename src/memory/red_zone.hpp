#pragma once

#include <cstddef>
#include <cstdint>

namespace tigon {

// Debug builds keep this many bytes around each planned block that nobody may touch.
#ifdef TIGON_DEBUG_MEMORY
inline constexpr int64_t kRedZone = 256;
#else
inline constexpr int64_t kRedZone = 0;
#endif

// Filled into red zones and freed blocks: NaN in every floating type, an absurd index in every integer type.
inline constexpr std::byte kPoison{0xff};

}  // namespace tigon
