#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <new>

#include "commands.hpp"
#include "config_file.hpp"
#include "help_formatter.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/version.hpp"
#include "unknown_words.hpp"

namespace {

// An empty value, which is what a shell makes of a variable that is not set, would be taken for 0 or for no flag at
// all.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    option->check([](const std::string& text) { return text.empty() ? "the value is empty" : std::string(); }, "");
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) refuse_empty_values(*command);
}

// Not by fmt, which throws where standard error is full or closed.
int say(const std::exception& error, int code) {
  (void)std::fputs((std::string("tigon: ") + error.what() + "\n").c_str(), stderr);
  return code;
}

// Scripts tell by it whether their flags were wrong, or memory too short.
int exit_code(tigon::ErrorCode code) {
  switch (code) {
    case tigon::ErrorCode::invalid_argument: return 2;
    case tigon::ErrorCode::out_of_memory: return 3;
    default: return 1;
  }
}

// Where a standard stream is closed, the next file that is opened would take its number, and what is meant for the
// screen would land in a log or a checkpoint. What stands there instead can be read, so that writing is an error still.
void keep_standard_streams_apart() {
  while (true) {
    const int file = ::open("/dev/null", O_RDONLY);
    if (file > STDERR_FILENO) (void)::close(file);
    if (file < 0 || file > STDERR_FILENO) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_streams_apart();
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file larger than the shell allows is then an error, as a full disk is
  CLI::App app("Tigon: LLM training in little memory", "tigon");
  app.set_version_flag("--version", std::string("tigon ") + tigon::version());
  app.require_subcommand(1);
  app.formatter(std::make_shared<tigon::app::HelpFormatter>());  // of the commands too
  app.footer(
      "Start with:  tigon plan --model llama-3.2-1b --precision bf16-sr --seq 1024 --fit 24GiB\n"
      "             tigon train --data data/austen.txt --steps 50\n"
      "             tigon help data                     what to train on\n"
      "             tigon study --preset cpu            strategies side by side, with pictures\n"
      "             tigon bench ops --ops rmsnorm,fused_linear_cross_entropy --memory\nEvery command has its own "
      "--help.");
  int code = 0;
  tigon::app::add_train(app, code);
  tigon::app::add_plan(app);
  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  std::vector<std::string> command_line = {"tigon"};
  command_line.insert(command_line.end(), given.begin(), given.end());
  tigon::app::add_study(app, std::move(command_line), code);
  tigon::app::add_tokenize(app, code);
  tigon::app::add_sample(app, code);
  tigon::app::add_eval(app, code);
  tigon::app::add_merge(app);
  tigon::app::add_report(app);
  tigon::app::add_bench(app);
  tigon::app::add_help(app);
  refuse_empty_values(app);
  try {
    std::vector<std::string> words = tigon::app::with_config(app, given);
    tigon::app::refuse_unknown_words(app, words);
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    try {
      app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      code = app.exit(error) == 0 ? 0 : 2;  // 0: --help and --version, which are output as any other
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw tigon::Error(tigon::ErrorCode::io, {.where = "standard output",
                                                .what = "not all of it could be written",
                                                .fix = "Send it to a file with room, or keep the terminal open."});
    }
    return code;
  } catch (const tigon::Error& error) {
    return say(error, exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    const tigon::Error error(tigon::ErrorCode::out_of_memory, {.where = "memory",
                                                               .what = "the system refused some beside what is planned",
                                                               .fix = "Use a smaller shape, or free memory."});
    return say(error, exit_code(error.code()));
  } catch (const std::exception& error) {
    return say(error, 1);
  }
}
