#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tigon {

// Texts into a token file.
struct TokenizeOptions {
  std::vector<std::filesystem::path> inputs;  // text, or JSON lines
  std::filesystem::path tokenizer;            // a folder, or a tokenizer.json
  std::filesystem::path output;
  std::string chat_template;  // by name; empty: the folder's, where it is a known one
  bool learn_all = false;     // else of chats, prompts and instructions the answers alone
  std::string end_of_text;    // the token behind each text; empty: the folder's eos_token; "none": no token
  std::string text_field = "text";
  int threads = 0;  // 0: as many as there are cores
};

// Learns a tokenizer (text/bpe_trainer.hpp) of the words of every text, prompt and chat of the inputs, and writes it to
// a folder that has none yet. How many tokens it has; 0 where `progress`, as below, ended it.
int64_t train_tokenizer(const std::filesystem::path& folder, int64_t vocab, const TokenizeOptions& options,
                        const std::function<bool(int64_t, int64_t)>& progress);

// Tells by a few letters what decides the output: the options, the tokenizer's files, and of inputs name, size and
// time.
std::string tokenize_key(const TokenizeOptions& options);

// What became of the input.
struct TokenizeReport {
  // Lines that gave nothing, by the reason, with the first few of them: "file:line".
  struct Dropped {
    std::string why;
    int64_t lines = 0;
    std::vector<std::string> first;
  };

  int64_t bytes = 0, documents = 0, tokens = 0, learnt = 0;
  int64_t repaired = 0;  // documents with bytes that are no UTF-8
  int64_t vocab = 0;
  std::string end_of_text;  // the token; empty: none
  std::vector<Dropped> dropped;
  int64_t begun = 0;     // bytes that an earlier run had done
  bool stopped = false;  // by `progress`
};

// By all cores, in the order of the input whatever their number, in memory that does not grow with it. A text file is a
// document; it is read in pieces of 4 MiB, cut at line ends where there are any, and the ids around such a cut may be
// others than in one piece. Of JSON lines each is one:
//   {"text": …}                                          a text
//   {"messages": [{"role": …, "content": …}, …]}         a chat, by a template
//   {"conversations": [{"from": …, "value": …}, …]}      the same, as ShareGPT has it
//   {"prompt": …, "completion": …}                       both, one behind the other
//   {"instruction": …, "input": …, "output": …}          Alpaca's; by the template, or by Alpaca's own words
// `progress` is told how many bytes of how many are done; false ends it. What there is by then stays beside the output
// (FILE.part, .documents and .resume; a kill leaves that of the last half minute), and the same call goes on from
// there. Nothing is written where nothing is left of the input.
TokenizeReport tokenize(const TokenizeOptions& options, const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace tigon
