#include "train/nf4_home.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "json/json.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/tensor.hpp"
#include "tigon/memory/arena.hpp"
#include "train/residents.hpp"

namespace tigon {

namespace {

constexpr int64_t kLongestState = int64_t{1} << 16;  // of bitsandbytes' text about a tensor

[[noreturn]] void refuse(const StoredTensor& tensor, const std::string& name, std::string what,
                         std::string expected = {}, std::string got = {}) {
  throw Error(ErrorCode::invalid_argument, {.where = tensor.file.string(),
                                            .what = "'" + name + "' " + std::move(what),
                                            .expected = std::move(expected),
                                            .got = std::move(got)});
}

// One of them, which has to have these elements.
const StoredTensor& member(const TensorFiles& files, const std::string& name, DType dtype, int64_t elements) {
  const StoredTensor* tensor = files.find(name);
  if (tensor == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                {.where = "weights",
                 .what = "'" + name + "' is not in the files",
                 .expected = "NF4 as bitsandbytes writes it, with double quantization (bnb_4bit_use_double_quant)"});
  }
  if (tensor->dtype != dtype || tensor->bytes != elements * size_of(dtype)) {
    refuse(*tensor, name, "does not fit the config", std::to_string(elements) + " of " + std::string(to_string(dtype)),
           shape_string(tensor->sizes) + " of " + std::string(to_string(tensor->dtype)));
  }
  return *tensor;
}

std::vector<float> floats(const TensorFiles& files, const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.bytes) / sizeof(float));
  files.read(tensor, 0, values.data(), tensor.bytes);
  return values;
}

void check_map(const TensorFiles& files, const std::string& name, std::span<const float> expected) {
  const StoredTensor& tensor = member(files, name, DType::f32, static_cast<int64_t>(expected.size()));
  const std::vector<float> values = floats(files, tensor);
  if (!std::equal(values.begin(), values.end(), expected.begin()))
    refuse(tensor, name, "is another map than NF4 with bitsandbytes' dynamic map for its scales");
}

std::string state_name(const std::string& name) { return name + ".quant_state.bitsandbytes__nf4"; }

// What bitsandbytes says of a tensor. Checks it where `sizes` are given, and returns the offset.
float read_state(const TensorFiles& files, const std::string& tensor, const std::vector<int64_t>* sizes) {
  const std::string name = state_name(tensor);
  const StoredTensor* stored = files.find(name);
  if (stored == nullptr) (void)member(files, name, DType::u8, 0);
  if (stored->dtype != DType::u8 || stored->bytes > kLongestState)
    refuse(*stored, name, "is no text of 64 KiB at most");
  std::string text(static_cast<size_t>(stored->bytes), '\0');
  files.read(*stored, 0, text.data(), stored->bytes);
  const std::string where = stored->file.string() + ": '" + name + "'";
  const Json json = Json::parse(text, where);
  const auto field = [&](const char* key) -> const Json& {
    const Json* value = json.find(key);
    if (value == nullptr) refuse(*stored, name, "has no '" + std::string(key) + "'");
    return *value;
  };
  const double offset = field("nested_offset").number(where);
  if (!std::isfinite(offset) || std::abs(offset) > static_cast<double>(std::numeric_limits<float>::max()))
    refuse(*stored, name, "has an offset that is not finite");
  if (sizes == nullptr) return static_cast<float>(offset);
  const auto is = [&](const char* key, const std::string& expected, const std::string& got) {
    if (got != expected) refuse(*stored, name, "says another '" + std::string(key) + "'", expected, got);
  };
  is("quant_type", "nf4", field("quant_type").string(where));
  is("blocksize", std::to_string(ops::kNf4Block), std::to_string(field("blocksize").integer(where)));
  is("nested_blocksize", std::to_string(ops::kNf4Group), std::to_string(field("nested_blocksize").integer(where)));
  is("nested_dtype", "float32", field("nested_dtype").string(where));
  std::vector<int64_t> shape;
  for (const Json& size : field("shape").array(where)) shape.push_back(size.integer(where));
  is("shape", shape_string(*sizes), shape_string(shape));
  return static_cast<float>(offset);
}

// Elements of a tensor of these sizes, which were checked.
int64_t elements_of(const std::vector<int64_t>& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return elements;
}

template <class T>
void put(const Context& ctx, const Residents& r, const Tensor& to, const std::vector<T>& values) {
  r.write(ctx, to, 0, values.data(), to.bytes());
}

}  // namespace

Nf4Home::Nf4Home(const Context& ctx, const std::string& name, int64_t elements)
    : codes(ctx, name + ".codes", DType::u8, {elements / 2 + elements % 2}, MemoryClass::weights),
      scale_codes(ctx, name + ".scale_codes", DType::u8, {ops::nf4_blocks(elements)}, MemoryClass::weights),
      group_scales(ctx, name + ".group_scales", DType::f32, {ops::nf4_groups(elements)}, MemoryClass::weights),
      offset(ctx, name + ".offset", DType::f32, {1}, MemoryClass::weights) {}

void store_nf4(const Context& ctx, const Residents& r, const std::vector<float>& values, const Nf4Home& home) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(static_cast<size_t>(n / 2 + n % 2)), scale_codes(static_cast<size_t>(ops::nf4_blocks(n)));
  std::vector<float> group_scales(static_cast<size_t>(ops::nf4_groups(n))), offset(1);
  const auto tensor = [](auto& v, DType dtype) {
    return Tensor::contiguous(v.data(), dtype, {static_cast<int64_t>(v.size())});
  };
  HeapArena heap;
  ops::nf4_quantize({.threads = ctx.threads, .memory = &heap},
                    {.x = Tensor::contiguous(const_cast<float*>(values.data()), DType::f32, {n}),  // NOLINT: only read
                     .to = {.codes = tensor(codes, DType::u8),
                            .scale_codes = tensor(scale_codes, DType::u8),
                            .group_scales = tensor(group_scales, DType::f32),
                            .offset = tensor(offset, DType::f32)}});
  put(ctx, r, home.codes, codes);
  put(ctx, r, home.scale_codes, scale_codes);
  put(ctx, r, home.group_scales, group_scales);
  put(ctx, r, home.offset, offset);
}

bool is_nf4(const TensorFiles& files, const std::string& name) {
  const StoredTensor* tensor = files.find(name);
  return tensor != nullptr && tensor->dtype == DType::u8;
}

void check_nf4(const TensorFiles& files, const std::string& name, const std::vector<int64_t>& sizes,
               std::set<std::string>& known) {
  const int64_t n = elements_of(sizes);
  (void)member(files, name, DType::u8, n / 2 + n % 2);
  (void)member(files, name + ".absmax", DType::u8, ops::nf4_blocks(n));
  const std::string scales = name + ".nested_absmax";
  const StoredTensor& group_scales = member(files, scales, DType::f32, ops::nf4_groups(n));
  for (const float scale : floats(files, group_scales)) {
    if (!std::isfinite(scale)) refuse(group_scales, scales, "has values that are not finite");
  }
  check_map(files, name + ".quant_map", ops::nf4_levels());
  check_map(files, name + ".nested_quant_map", ops::nf4_scale_map());
  (void)read_state(files, name, &sizes);
  for (const char* what : {".absmax", ".nested_absmax", ".quant_map", ".nested_quant_map"}) known.insert(name + what);
  known.insert(state_name(name));
}

void load_nf4(const Context& ctx, const Residents& r, const TensorFiles& files, const std::string& name,
              const Nf4Home& home) {
  const auto copy = [&](const char* what, const Tensor& to) {
    std::vector<std::byte> bytes(static_cast<size_t>(to.bytes()));
    files.read(*files.find(name + what), 0, bytes.data(), to.bytes());
    put(ctx, r, to, bytes);
  };
  copy("", home.codes);
  copy(".absmax", home.scale_codes);
  copy(".nested_absmax", home.group_scales);
  put(ctx, r, home.offset, std::vector{read_state(files, name, nullptr)});
}

}  // namespace tigon
