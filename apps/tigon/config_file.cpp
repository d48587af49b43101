#include "config_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tigon/core/error.hpp"
#include "tigon/core/version.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/study/flags_file.hpp"
#include "unknown_words.hpp"

namespace tigon::app {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 20;

// Of a command line alone.
bool belongs_in_a_file(const std::string& name) { return name != "help" && name != "config" && name != "print-config"; }

bool is_switch(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

// Given as "!--name": the name says the opposite of what the program keeps.
bool is_negated(const CLI::Option& option, const std::string& name) {
  const std::vector<std::string>& negated = option.get_fnames();
  return std::find(negated.begin(), negated.end(), name) != negated.end();
}

std::string config_path(const std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--config";
  std::string path;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == kFlag && i + 1 < words.size()) path = words[i + 1];
    if (words[i].starts_with(std::string(kFlag) + "=")) path = words[i].substr(kFlag.size() + 1);
  }
  return path;
}

std::set<const CLI::Option*> given_options(const CLI::App& command, const std::vector<std::string>& words) {
  std::set<const CLI::Option*> given;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    if (const CLI::Option* option = command.get_option_no_throw(word.substr(0, word.find('=')))) given.insert(option);
  }
  return given;
}

// "--name=value", or nothing where there is nothing to say.
std::string word_of(const FileFlag& flag, const CLI::Option& option, const std::string& where) {
  const std::string name = "--" + flag.name;
  if (flag.value.empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        {.where = where, .what = "'" + flag.name + "' is empty", .fix = "Give it a value, or take the line out."});
  }
  if (!flag.switch_ || is_switch(option)) return name + "=" + flag.value;
  if (option.get_expected_min() == 0) return flag.value == "true" ? name : "";  // its value may be left out
  throw Error(ErrorCode::invalid_argument, {.where = where,
                                            .what = "'" + flag.name + "' is not switched on or off",
                                            .expected = option.get_type_name(),
                                            .got = flag.value});
}

// The one of that name; null: none.
const CLI::App* command_of(const CLI::App& app, const std::string& name) {
  const auto named = app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == name; });
  return named.empty() ? nullptr : named.front();
}

}  // namespace

void add_config_flag(CLI::App& command) {
  command
      .add_option("--config",
                  "Take flags from a TOML file, as `batch = 8`, `bytes = true`; those given here win. tigon train "
                  "--print-config writes one")
      ->type_name("FILE.toml");
}

std::vector<std::string> with_config(const CLI::App& app, std::vector<std::string> words) {
  const std::string path = config_path(words);
  if (path.empty() || words.empty()) return words;
  const CLI::App* command = command_of(app, words[0]);
  if (command == nullptr || command->get_option_no_throw("--config") == nullptr) return words;
  const CLI::App* train = command_of(app, "train");
  const std::set<const CLI::Option*> given = given_options(*command, words);
  const auto wins = [&](const CLI::Option* option) { return given.contains(option); };

  std::vector<std::string> from_file;
  for (const FileFlag& flag : flags_from_toml(read_text_file(path, kMostBytes), path)) {
    const std::string where = fmt::format("{}, line {}", path, flag.line), name = "--" + flag.name;
    const CLI::Option* option = belongs_in_a_file(flag.name) ? command->get_option_no_throw(name) : nullptr;
    if (option == nullptr) {
      // A plan takes the file of its run.
      if (belongs_in_a_file(flag.name) && train->get_option_no_throw(name) != nullptr) continue;
      refuse_unknown_flag(belongs_in_a_file(flag.name) ? *train : *command, where, name);
    }
    const std::set<CLI::Option*> excluded = option->get_excludes();
    if (wins(option) || std::any_of(excluded.begin(), excluded.end(), wins)) continue;
    if (std::string word = word_of(flag, *option, where); !word.empty()) from_file.push_back(std::move(word));
  }
  words.insert(words.begin() + 1, from_file.begin(), from_file.end());
  return words;
}

std::string config_text(const CLI::App& command) {
  std::string text =
      fmt::format("# tigon {} --config THIS_FILE repeats this run. Tigon {}.\n", command.get_name(), version());
  std::string group;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    // To go on from a checkpoint is said anew each time.
    if (!belongs_in_a_file(name) || name == "resume") continue;
    const bool given = option->count() > 0;
    const std::set<CLI::Option*> excluded = option->get_excludes();
    if (option->get_group() != group) text += fmt::format("\n# {}\n", group = option->get_group());
    if (is_switch(*option)) {
      const bool on = given && (option->as<bool>() != is_negated(*option, name));
      text += given ? fmt::format("{} = {}\n", name, on) : fmt::format("# {}\n", name);
    } else {
      // The default of a flag that excludes one that was given would be refused beside it.
      const bool other = std::any_of(excluded.begin(), excluded.end(), [](const auto* o) { return o->count() > 0; });
      const std::string value = given ? option->results().back() : other ? "" : option->get_default_str();
      text += value.empty() ? fmt::format("# {}\n", name) : fmt::format("{} = {}\n", name, toml_value(value));
    }
  }
  return text;
}

}  // namespace tigon::app
