#include "model_flags.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config_file.hpp"
#include "tigon/core/context.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon::app {

CLI::Option* add_word(CLI::App& command, const std::string& name, const std::string& help, const std::string& shown,
                      const std::function<void(const std::string&)>& read) {
  return command.add_option_function<std::string>(name, read, help)->default_str(shown);
}

void ModelFlags::add_to(CLI::App& command) {
  std::string known;
  for (const std::string& name : builtin_model_names()) known += (known.empty() ? "" : ", ") + name;
  // As a shell's user expects of an alias, and a study of its strategies: what comes later counts.
  command.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  command.option_defaults()->group("Model and step");
  add_config_flag(command);
  command.add_option("--model", model, "A Hugging Face folder with a config.json, or a built-in shape: " + known)
      ->type_name("MODEL")
      ->capture_default_str();
  add_word(command, "--device", "cpu, cuda or cuda:N", to_string(train.device), [this](const std::string& text) {
    train.device = device_from_string(text);
  })->type_name("DEVICE");
  command.add_option("--batch", train.batch, "Sequences per micro-batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--seq", train.seq, "Tokens per sequence")
      ->check(CLI::Range(int64_t{1}, kLongestSequence))
      ->capture_default_str();
  command
      .add_option("--accumulate", train.accumulate,
                  "Micro-batches per step; their gradients add up to the large batch's")
      ->check(CLI::Range(int64_t{1}, kMostMicroBatches))
      ->capture_default_str();
  add_word(command, "--precision",
           "fp32; bf16 (f32 master, m, v: 16 bytes a parameter); bf16-sr (all bf16, stochastic rounding: 8 bytes); "
           "fp16 (as bf16, with a dynamic loss scale)",
           train.precision.name, [this](const std::string& text) { train.precision = precision_from_string(text); })
      ->check(CLI::IsMember(precision_names()));
  add_word(
      command, "--optimizer",
      "adamw; or adamw8, AdamW whose m and v take 8 bits each, with a scale for 256 elements, as bitsandbytes has "
      "them. Norms, biases, matrices of less than 4096 elements and the embedding keep the precision's; or apollo, "
      "which keeps m and v of a random projection of each matrix of attention and MLP, and scales the rows of its "
      "gradient by them; or apollo-mini, which scales the gradient of a matrix as a whole; or galore, which keeps them "
      "of "
      "its largest singular vectors, and steps there",
      std::string(to_string(train.optimizer.kind)),
      [this](const std::string& text) { train.optimizer.kind = optimizer_from_string(text); })
      ->check(CLI::IsMember(optimizer_names()));
  command.add_flag("--adamw8-embedding", train.optimizer.embedding_in_8_bits,
                   "With adamw8: the embedding too, and a head that is tied to it");
  command
      .add_option("--rank", train.optimizer.rank, "With apollo and galore: numbers for each row; 256, of apollo-mini 1")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--gap", train.optimizer.gap, "With apollo and galore: steps with the same projection; 200")
      ->check(CLI::Range(1, 1000000000));
  command
      .add_option("--scale", train.optimizer.scale,
                  "By what the updates of matrices are longer: with galore itself, 0.25; with apollo its root, 1, of "
                  "apollo-mini 128")
      ->check(CLI::Range(1e-6, 1e9));
  CLI::Option* lora =
      add_word(command, "--lora",
               "Train low-rank adapters beside the frozen model: r=16,alpha=32,targets=all-linear; targets also as "
               "q_proj+v_proj; rslora scales by alpha/sqrt(r)",
               lora_to_string(train.lora), [this](const std::string& text) { train.lora = lora_from_string(text); })
          ->type_name("ADAPTERS");
  add_word(command, "--base",
           "With --lora or --adapters, what the matrices of the frozen blocks are kept in: full, as --precision says; "
           "nf4, 4.13 bits a weight (QLoRA), made of the model's weights or as bitsandbytes has written them",
           std::string(to_string(train.base)), [this](const std::string& text) { train.base = base_from_string(text); })
      ->check(CLI::IsMember(base_names()));
  command
      .add_option_function<std::string>(
          "--adapters",
          [this](const std::string& folder) {
            adapters = folder;
            const std::filesystem::path config = adapters / kAdapterConfig;
            train.lora = lora_from_json(read_text_file(config, int64_t{1} << 24), config.string());
          },
          "Go on with adapters that PEFT or tigon has written")
      ->excludes(lora)
      ->type_name("FOLDER");
  command.add_option("--clip", train.clip, "The largest norm of the gradient; 0: any")->capture_default_str();
  command.add_flag(
      "!--nondeterministic", train.deterministic,
      "Allow attention gradients that differ in their last bits from run to run where that is faster (GPU)");
  command.add_option("--threads", train.threads, "CPU threads, 0 for all; results do not depend on it")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
  command.option_defaults()->group("Memory");
  add_word(command, "--recompute",
           "What forward drops and backward makes again: none; selective (whatever costs no product); block (all "
           "but each layer's input, as gradient checkpointing does); or stages by name, such as norm1,activation",
           recompute_to_string(train.memory.recompute),
           [this](const std::string& text) { train.memory.recompute = recompute_from_string(text); })
      ->type_name("WHAT");
  add_word(command, "--fused",
           "Which ops run fused: all, none, or some of rope,swiglu,rmsnorm,flce. The others run as the chain of "
           "steps of an eager framework, to compare with",
           fused_to_string(train.fused), [this](const std::string& text) { train.fused = fused_from_string(text); })
      ->type_name("OPS");
  command.add_option("--mlp-tile", train.memory.mlp_tile, "Run the MLP on so many tokens at a time; 0: all at once")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  add_word(command, "--offload",
           "What has its home on the host: none; optimizer (states and gradients); all (weights too); "
           "all+checkpoints (each layer's input as well). Kind by kind also on a disk, as in all,states=nvme: weights, "
           "gradients, states, checkpoints, each =device, =host or =nvme",
           to_string(train.memory.homes),
           [this](const std::string& text) { train.memory.homes = homes_from_string(text); })
      ->type_name("WHAT");
  command
      .add_option(
          "--offload-dir", train.memory.disk.folder,
          "For what has its home on the disk (nvme): a file without a name, gone with the run. Without it: where "
          "--checkpoints is, else $TMPDIR or /var/tmp")
      ->type_name("FOLDER");
  add_word(
      command, "--update",
      "With --offload, who updates: cpu, the host's cores where states and gradients are; gpu, through which a few "
      "pieces at a time pass; both, each taking the next piece when it is free; auto, both on a GPU where that may "
      "be. The bits are the same",
      std::string(to_string(train.memory.updater)),
      [this](const std::string& text) { train.memory.updater = updater_from_string(text); })
      ->type_name("auto|cpu|gpu|both");
  add_word(command, "--order",
           "With --accumulate: each micro-batch through all layers, or all micro-batches through each layer, so that "
           "weights move twice a step however large it is",
           std::string(to_string(train.memory.order)),
           [this](const std::string& text) { train.memory.order = order_from_string(text); })
      ->type_name("batches|layers");
  CLI::Option* chunk_option = command
                                  .add_option("--chunk", train.memory.chunk.tokens,
                                              "Tokens per chunk of the fused loss; 0: by the size of the logits")
                                  ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
                                  ->capture_default_str();
  command.add_flag("--liger-chunk", train.memory.chunk.liger, "Chunks by Liger's rule")->excludes(chunk_option);
  command.add_flag("--lean-loss", train.memory.chunk.lean,
                   "The fused loss in panels of the vocabulary: least memory, a fourth product. With --offload all "
                   "nothing of the vocabulary's size is on the device then");
  command.add_flag(
      "--update-early", train.memory.update_early,
      "Update each layer as soon as its gradient is complete: one layer's gradients exist at a time. Needs "
      "--clip 0 and --accumulate 1, and not fp16");
}

std::filesystem::path ModelFlags::folder() const {
  return std::filesystem::is_directory(model) ? std::filesystem::path(model) : std::filesystem::path();
}

ModelConfig ModelFlags::model_config() const {
  const std::filesystem::path from = folder();
  if (from.empty()) return builtin_model(model);
  return model_config_from_json(read_text_file(from / "config.json", int64_t{1} << 24),
                                (from / "config.json").string());
}

namespace {

using ByClass = std::array<int64_t, kMemoryClassCount>;

std::string table_row(std::string_view name, int64_t bytes) {
  return fmt::format("{:<14} {:>12} {:>16}\n", name, human_bytes(bytes), bytes);
}

// A row for each class that has bytes, one for what packing could not fill, and the sum.
std::string space_table(std::string_view title, const ByClass& by_class, int64_t total) {
  std::string text = fmt::format("{:<14} {:>12} {:>16}\n", title, "at the peak", "bytes");
  int64_t sum = 0;
  for (int c = 0; c < kMemoryClassCount; ++c) {
    const int64_t bytes = by_class[static_cast<size_t>(c)];
    sum += bytes;
    if (bytes > 0) text += table_row(to_string(static_cast<MemoryClass>(c)), bytes);
  }
  return text + table_row("packing", total - sum) + table_row("all", total);
}

}  // namespace

std::string homes_text(const TrainConfig& train) {
  std::string text;
  if (train.memory.homes.any_away()) text += ", offload " + to_string(train.memory.homes);
  if (train.memory.moves_updates()) text += ", update " + std::string(to_string(train.memory.updater));
  if (train.accumulate > 1 && train.memory.order == Order::layers) text += ", by layers";
  return text;
}

std::string plan_table(const MemoryPlan& plan) {
  const bool away = plan.train.memory.homes.any_away();
  std::string text = space_table(away ? "device" : "memory", plan.peak_by_class(), plan.total_bytes());
  if (plan.pinned_bytes() > 0)
    text += "\n" + space_table("host, pinned", plan.pinned.ledger.peak_by_class(), plan.pinned_bytes());
  if (plan.host_bytes() > 0) text += "\n" + space_table("host", plan.host.ledger.peak_by_class(), plan.host_bytes());
  if (plan.disk_bytes() == 0) return text;
  text += "\n" + space_table("disk", plan.disk.peak_by_class(), plan.disk_bytes());
  return text + fmt::format("  a step writes {} there and reads {}\n", human_bytes(plan.disk_step.written),
                            human_bytes(plan.disk_step.read));
}

}  // namespace tigon::app
