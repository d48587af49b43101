#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "tigon/core/error.hpp"

namespace tigon::app {

namespace {

constexpr const char* kData = R"(What tigon train --data may be:

  Text or JSON lines (texts, chats, prompts): tokens by the tokenizer.json of the model's folder, or of
  --tokenizer FOLDER. They are made once and kept in ~/.cache/tigon.
  Text, where the model's vocabulary is 256 (llama-bytes-1m, llama-bytes-6m) and there is no tokenizer: a
  token per byte.
  A token file, for any model.

With --bytes any file is a token per byte, whatever the model.

A token file of your own, with a choice of templates, fields and what is learnt:

  tigon tokenize text.txt --tokenizer Llama-3.2-1B --output tokens.bin

In Python, for what that does not take (pip install numpy transformers). A token file is, little-endian: the
8 bytes TIGONTOK, u32 version 1, u32 bytes per token (2 or 4), u64 number of tokens, u64 vocabulary size, then
the tokens.

  import numpy, struct
  from transformers import AutoTokenizer

  tokenizer = AutoTokenizer.from_pretrained("./Llama-3.2-1B")
  tokens = tokenizer(open("text.txt").read())["input_ids"]
  with open("tokens.bin", "wb") as file:
      file.write(b"TIGONTOK" + struct.pack("<IIQQ", 1, 4, len(tokens), len(tokenizer)))
      numpy.array(tokens, dtype="<u4").tofile(file)

Parquet and compressed files: read the texts first (datasets.load_dataset, gzip.open), tokenize
each, and put tokenizer.eos_token_id after it. docs/training.md has more.
)";

void print(const CLI::App& app, const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"data"}) {
    (void)std::fputs(kData, stdout);
    return;
  }
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const std::string& word : words) {
    std::string known;
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_name() == word) next = sub;
      known += sub->get_name() + ", ";
    }
    if (next == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  {.where = "help", .what = "there is nothing of this name", .expected = known + "data", .got = word});
    }
    command = next;
    name += " " + word;
  }
  // Not App::help, which would be that of the command under way: this one.
  const std::string text = command->get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal);
  (void)std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_help(CLI::App& app) {
  CLI::App* help = app.add_subcommand("help", "Help on a command, or on what training data is: tigon help data");
  const auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("topic", *words, "A command, or data");
  help->callback([&app, words] { print(app, *words); });
}

}  // namespace tigon::app
