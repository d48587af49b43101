#include <CLI/CLI.hpp>
#include <memory>

#include "commands.hpp"
#include "screen.hpp"
#include "tigon/train/merge.hpp"

namespace tigon::app {

void add_merge(CLI::App& app) {
  CLI::App* merge = app.add_subcommand("merge", "Make adapters a part of their model");
  struct Flags {
    std::string model, adapters, output;
  };
  const auto flags = std::make_shared<Flags>();
  merge->add_option("--model", flags->model, "The model's folder")->type_name("FOLDER")->required();
  merge->add_option("--adapters", flags->adapters, "The adapters' folder, of PEFT or of tigon train --lora")
      ->type_name("FOLDER")
      ->required();
  merge->add_option("--output", flags->output, "For the merged model, which transformers loads")
      ->type_name("FOLDER")
      ->required();
  merge->footer("\nExample:  tigon merge --model Llama-3.2-1B --adapters adapters --output merged");
  merge->callback([flags] {
    show("merging {} and {}\n", flags->model, flags->adapters);
    merge_adapters(flags->model, flags->adapters, flags->output);
    show("the merged model is in {}\n", flags->output);
  });
}

}  // namespace tigon::app
