#include "plan_anywhere.hpp"

#include <fmt/format.h>

#include "tigon/core/error.hpp"
#include "tigon/ops/device_memory.hpp"
#include "tigon/train/updater.hpp"

namespace tigon::app {

MemoryPlan plan_anywhere(const ModelConfig& model, const ParameterList& parameters, TrainConfig& train,
                         std::string& note) {
  std::string why;
  try {
    return plan_memory(model, parameters, train);
  } catch (const Error& error) {
    if (train.device.kind == DeviceKind::cpu || error.code() != ErrorCode::unsupported) throw;
    why = error.what();
  }
  const Device wanted = train.device;
  try {
    train.device = assumed_gpu();
    note = fmt::format("\nNo GPU here: as on an {}, but without what cuDNN takes for attention. ({})\n",
                       assumed_gpu_name(), why);
    return plan_memory(model, parameters, train);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
  }
  // The tensors are the same everywhere; what kernels and libraries take for themselves only the CUDA backend can say.
  // The loss's chunk is the least that a GPU takes, with the CPU's f32 logits.
  train.device = wanted;
  train.memory.chunk.tokens = loss_chunk(model, train);
  if (train.memory.moves_updates())
    train.memory.updater = settled_updater(train.memory.updater, train.memory.homes, wanted, train.optimizer.kind);
  train.device = {};
  note = fmt::format(
      "\nWithout a GPU or its backend, \"loss\" and \"workspace\" are what the CPU's kernels take; every other row\n"
      "is what the GPU will hold. ({})\n",
      why);
  return plan_memory(model, parameters, train);
}

}  // namespace tigon::app
