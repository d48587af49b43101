#pragma once

#include "tigon/storage/safetensors.hpp"
#include "train/residents.hpp"

namespace tigon {

// Which parameters files are of: a model's, or those of its adapters.
enum class FilesOf { model, adapters };

// Random weights: normal values by (seed, parameter, element), the same on every device.
void initialize_weights(const Context& ctx, const ParameterList& parameters, uint64_t seed, FilesOf what, Residents& r);

// Weights from Hugging Face files, in any floating type. Checks first: a tensor that is missing, too many, or of
// another shape is an Error. Loading expects what was checked. With BaseFormat::nf4 matrices of blocks may also stand
// there in NF4, as bitsandbytes writes them.
void check_weights(const ParameterList& parameters, bool tied, const TensorFiles& files, FilesOf what,
                   BaseFormat base = BaseFormat::full);
void load_weights(const Context& ctx, const ParameterList& parameters, const TensorFiles& files, FilesOf what,
                  Residents& r);

// A number that other weights do not have: of each tensor the name, the type, the shape, and a few bytes of its middle.
std::string weights_fingerprint(const TensorFiles& files);

// Some of our arrays under the names of Hugging Face files, to be read from the device piece by piece. Absent ones are
// left out.
std::vector<TensorToStore> parts_to_store(const Context& ctx, const ParameterList& parameters,
                                          const std::vector<Tensor>& tensors, const Residents& r);

// Values of any floating type as f32, and back, rounded once. The second is as long as the first says.
void widen(DType dtype, const std::vector<std::byte>& bytes, std::vector<float>& values);
void narrow(DType dtype, const std::vector<float>& values, std::vector<std::byte>& bytes);

// The same, but a value that is not finite is an Error when its turn comes: spoiled weights are not saved as good ones.
std::vector<TensorToStore> only_finite(std::vector<TensorToStore> tensors);

// The optimizer's states under our own names, and back.
std::vector<TensorToStore> states_to_store(const Context& ctx, const ParameterList& parameters, const Residents& r);
// Checks names, types and shapes.
void check_states(const ParameterList& parameters, const TensorFiles& files, const Residents& r);
void load_states(const Context& ctx, const ParameterList& parameters, const TensorFiles& files, Residents& r);

void clear_states(const Context& ctx, Residents& r);

}  // namespace tigon
