#pragma once

#include <cstddef>

// The 16 levels of NF4 as bitsandbytes has them: quantiles of a normal distribution, an exact 0 among them, scaled to
// [-1, 1]. A code is the number of middles between neighbours that a value exceeds.
namespace tigon {

struct Nf4Levels {
  constexpr Nf4Levels() {
    for (std::size_t i = 0; i < 15; ++i) middles[i] = (levels[i] + levels[i + 1]) / 2;
  }
  float levels[16] = {-1.0f,           -0x1.647362p-1f, -0x1.0cd66p-1f,  -0x1.94654p-2f,
                      -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0.0f,
                      0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
                      0x1.c3497p-2f,   0x1.200f56p-1f,  0x1.722766p-1f,  1.0f};
  float middles[15] = {};
};
inline constexpr Nf4Levels kNf4{};

inline constexpr float kNf4Smallest = 1e-38f;  // blocks below it are scaled by its inverse

}  // namespace tigon
