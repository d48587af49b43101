#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tigon/model/parameters.hpp"

namespace tigon {

// What the matrices of the blocks are kept in that adapters stand beside: as the precision says, or in NF4
// (tigon/ops/nf4.hpp), tensor by tensor of the model's files. Embedding, norms and head are as the precision says.
enum class BaseFormat : int32_t { full, nf4 };
BaseFormat base_from_string(std::string_view text);
std::string_view to_string(BaseFormat base) noexcept;
std::vector<std::string> base_names();

// Of a parameter in NF4.
int64_t nf4_bytes(const Parameter& parameter);

}  // namespace tigon
