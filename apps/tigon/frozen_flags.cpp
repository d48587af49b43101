#include "frozen_flags.hpp"

#include "model_flags.hpp"
#include "tigon/core/context.hpp"
#include "tigon/core/error.hpp"
#include "tigon/storage/files.hpp"

namespace tigon::app {

namespace {

constexpr int64_t kMostConfig = int64_t{1} << 24;

std::string read(const std::filesystem::path& file) { return read_text_file(file, kMostConfig); }

}  // namespace

void FrozenFlags::add_to(CLI::App& command) {
  command.option_defaults()->group("Model");
  command
      .add_option("--model", model,
                  "A folder with config.json and weights: of Hugging Face, --output of tigon train, or a checkpoint")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory)
      ->required();
  command.add_option("--adapters", adapters, "Adapters beside it, of PEFT or of tigon train --lora")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory);
  add_word(command, "--device", "cpu, cuda or cuda:N", to_string(options.device), [this](const std::string& text) {
    options.device = device_from_string(text);
  })->type_name("DEVICE");
  command.add_option("--precision", precision, "fp32, bf16 or fp16; without it as the weights are stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command.add_option("--threads", options.threads, "CPU threads, 0 for all; results do not depend on it")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
}

ModelConfig FrozenFlags::model_config() const {
  const std::filesystem::path file = model / "config.json";
  if (!std::filesystem::exists(file) && std::filesystem::exists(model / kAdapterConfig)) {
    throw Error(ErrorCode::invalid_argument,
                {.where = model.string(),
                 .what = "these are adapters, which need the model that they were trained beside",
                 .fix = "Name its folder by --model, and this one by --adapters."});
  }
  return model_config_from_json(read(file), file.string());
}

FrozenOptions FrozenFlags::settled() const {
  FrozenOptions settled = options;
  settled.precision = precision.empty() ? stored_precision(model) : precision_from_string(precision);
  settled.base = stored_base(model);
  if (!adapters.empty()) {
    const std::filesystem::path file = adapters / kAdapterConfig;
    settled.lora = lora_from_json(read(file), file.string());
  }
  return settled;
}

}  // namespace tigon::app
