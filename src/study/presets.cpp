// The studies that come with Tigon, as the text that anybody could write: `tigon study --show NAME` prints it.
#include <array>
#include <string>

#include "tigon/core/error.hpp"
#include "tigon/study/study.hpp"

namespace tigon {

namespace {

struct Preset {
  const char* name;
  const char* text;
};

constexpr const char* kCpu =
    R"toml(# What fused kernels, recomputation and offload do to time and memory, on a CPU in a few minutes.
name = "cpu"
title = "A small Llama on a CPU"
model = "llama-25m"
cap = "2GiB"          # of memory, as if the machine had no more
warmup = 1
steps = 3

[[strategy]]
name = "unfused"
title = "As an eager framework"
flags = "--fused none"

[[strategy]]
name = "fused"
title = "Fused kernels"

[[strategy]]
name = "recompute"
title = "Fused + recompute"
flags = "--recompute block"

[[strategy]]
name = "offload"
title = "Fused + recompute + offload"
flags = "--recompute block --offload all+checkpoints --lean-loss"

[[sweep]]
batches = [1, 4, 8]
seqs = [256]

[[sweep]]
batches = [1]
seqs = [512, 1024]
)toml";

constexpr const char* kSingleGpu =
    R"toml(# Everything on one GPU of 24 GiB: the largest batch and the longest sequence with and without fused kernels.
name = "single-gpu"
title = "Llama-3.2-1B on one GPU within 24 GiB"
model = "llama-3.2-1b"
flags = "--device cuda --precision bf16-sr"
cap = "24GiB"

[[strategy]]
name = "unfused"
title = "Unfused + recompute"
flags = "--fused none --recompute block"

[[strategy]]
name = "fused"
title = "Fused + recompute"
flags = "--recompute block"

[[strategy]]
name = "resident"
title = "Fused, nothing recomputed"

[[sweep]]
batches = [1, 4, 8, 16, 32, 64, 96, 112]
seqs = [1024]

[[sweep]]
batches = [4]
seqs = [512, 2048, 4096, 8192, 16384, 24576]
)toml";

constexpr const char* kOffload =
    R"toml(# Weights, gradients, states and layer inputs on the host, within 24 GiB of the GPU.
name = "offload"
title = "Llama-3.2-1B with everything offloaded within 24 GiB"
model = "llama-3.2-1b"
flags = "--device cuda --recompute block --clip 0.9 --lr 1e-4 --beta2 0.95"
cap = "24GiB"
steps = 5

[[strategy]]
name = "unfused"
title = "fp16, unfused"
flags = "--precision fp16 --loss-scale-power 7 --loss-scale-window 100 --fused none --offload all"

[[strategy]]
name = "fused"
title = "fp16, fused"
flags = "--precision fp16 --loss-scale-power 7 --loss-scale-window 100 --offload all"

[[strategy]]
name = "checkpoints"
title = "fp16, fused, layer inputs away too"
flags = "--precision fp16 --loss-scale-power 7 --loss-scale-window 100 --offload all+checkpoints"

[[strategy]]
name = "rounding"
title = "bf16, stochastic rounding"
flags = "--precision bf16-sr --offload all+checkpoints"

[[sweep]]
batches = [1, 4, 8, 16, 32, 64, 96, 112]
seqs = [1024]

[[sweep]]
batches = [4]
seqs = [512, 2048, 4096, 8192, 16384, 24576]
)toml";

constexpr const char* kAblation = R"toml(# Which fused kernel is worth what.
name = "ablation"
title = "Llama-3.2-1B, one fused kernel after the other"
model = "llama-3.2-1b"
flags = "--device cuda --precision bf16-sr --recompute block"
cap = "24GiB"
batches = [4, 8, 16]
seqs = [1024]

[[strategy]]
name = "none"
title = "None"
flags = "--fused none"

[[strategy]]
name = "no-flce"
title = "All but the loss"
flags = "--fused rope,swiglu,rmsnorm"

[[strategy]]
name = "only-flce"
title = "The loss alone"
flags = "--fused flce"

[[strategy]]
name = "all"
title = "All"
)toml";

constexpr const char* kKernels = R"toml(# Every op alone, fused and unfused, beside what the machine can do at most.
name = "kernels"
title = "Kernels"
kernels = "--repeats 10"
)toml";

constexpr std::array kPresets = {Preset{"cpu", kCpu}, Preset{"single-gpu", kSingleGpu}, Preset{"offload", kOffload},
                                 Preset{"ablation", kAblation}, Preset{"kernels", kKernels}};

}  // namespace

std::vector<std::string> study_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::string_view study_preset_text(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.text;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw Error(ErrorCode::invalid_argument, {.where = "--preset",
                                            .what = "there is no such preset",
                                            .expected = "one of " + known,
                                            .got = "'" + std::string(name) + "'"});
}

}  // namespace tigon
