#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

const Backend& backend() {
  static const Backend table = {.name = "reference", TIGON_BACKEND_OPS(TIGON_TABLE_ENTRY)};
  return table;
}

}  // namespace tigon::reference
