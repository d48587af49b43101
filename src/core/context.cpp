#include "tigon/core/context.hpp"

#include "tigon/core/error.hpp"

namespace tigon {

std::string_view to_string(MemoryClass memory_class) noexcept {
  switch (memory_class) {
    case MemoryClass::weights: return "weights";
    case MemoryClass::gradients: return "gradients";
    case MemoryClass::states: return "states";
    case MemoryClass::layer_inputs: return "layer inputs";
    case MemoryClass::activations: return "activations";
    case MemoryClass::loss: return "loss";
    case MemoryClass::workspace: return "workspace";
    case MemoryClass::other: return "other";
  }
  return "unknown";
}

Buffer Context::take(std::string_view name, int64_t bytes, MemoryClass memory_class) const {
  if (bytes == 0) return {};
  if (memory == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                {.where = std::string(name),
                 .what = "this op needs " + std::to_string(bytes) + " bytes of scratch and the context has no memory",
                 .fix = "Set Context::memory (for example to a HeapArena), or pass scratch through the C ABI."});
  }
  return Buffer(*memory, name, bytes, books_as.value_or(memory_class));
}

OwnedTensor::OwnedTensor(const Context& ctx, std::string_view name, DType dtype, std::span<const int64_t> sizes,
                         MemoryClass memory_class)
    : buffer(ctx.take(name, checked_bytes("OwnedTensor", dtype, sizes), memory_class)),
      view(Tensor::contiguous(buffer.data(), dtype, sizes, ctx.device)) {}

}  // namespace tigon
