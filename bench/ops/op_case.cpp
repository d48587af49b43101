#include "op_case.hpp"

#include <charconv>

#include "tigon/core/error.hpp"

namespace tigon::bench {

std::vector<int64_t> parse_shape(const std::string& op, const std::string& text, size_t count,
                                 const std::string& help) {
  std::vector<int64_t> numbers;
  const char* position = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    int64_t number = 0;
    const auto [next, failure] = std::from_chars(position, end, number);
    if (failure != std::errc{} || number < 1) break;
    numbers.push_back(number);
    if (next == end) {
      if (numbers.size() == count) return numbers;
      break;
    }
    if (*next != 'x') break;
    position = next + 1;
  }
  throw Error(ErrorCode::invalid_argument, {.where = op,
                                            .what = "the shape cannot be read",
                                            .expected = help + " in whole numbers",
                                            .got = "'" + text + "'"});
}

const std::vector<OpTable>& all_tables() {
  static const std::vector<OpTable> tables = {
      rmsnorm_table(),        add_rmsnorm_table(),
      layernorm_table(),      rope_table(),
      swiglu_table(),         geglu_table(),
      softmax_table(),        cross_entropy_table(),
      linear_table(),         fused_linear_cross_entropy_table(),
      embedding_table(),      attention_table(),
      adamw_table(),          global_norm_table(),
      scale_table(),          nf4_quantize_table(),
      nf4_dequantize_table(),
  };
  return tables;
}

}  // namespace tigon::bench
