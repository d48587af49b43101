#include "unknown_words.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tigon/core/error.hpp"

namespace tigon::app {

namespace {

// How many letters must be put in, taken out or replaced to make one of the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// "Did you mean …? " for the nearest of the known words, if any is near; the word as the beginning of a known one is.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t d = word.size() > 2 && candidate.starts_with(word) ? 1 : distance(word, candidate);
    if (d >= least) continue;
    least = d;
    nearest = candidate;
  }
  return nearest.empty() ? "" : "Did you mean " + nearest + "? ";
}

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& expected,
                         const std::string& fix) {
  throw Error(ErrorCode::invalid_argument, {.where = where, .what = what, .expected = expected, .fix = fix});
}

// Its name as it is typed, "tigon bench ops".
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

using Words = std::span<const std::string>;

void refuse_unknown_flags(const CLI::App& command, Words words) {
  for (const std::string& text : words) {
    const std::string flag = text.substr(0, text.find('='));
    if (text == "--") return;
    if (flag.find(' ') != std::string::npos) continue;  // the value of one, such as flags for another program
    if (text.starts_with("--") && command.get_option_no_throw(flag) == nullptr) refuse_unknown_flag(command, {}, flag);
  }
}

void refuse_in(const CLI::App& command, Words words) {
  const auto commands = command.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || (!words.empty() && words[0].starts_with('-'))) return refuse_unknown_flags(command, words);
  const std::string help = "See " + full_name(command) + " --help.";
  std::vector<std::string> known;
  std::string list;
  for (const CLI::App* sub : commands) {
    if (!words.empty() && sub->get_name() == words[0]) return refuse_in(*sub, words.subspan(1));
    known.push_back(sub->get_name());
    list += (list.empty() ? "" : ", ") + sub->get_name();
  }
  if (words.empty()) refuse({}, "a command is missing", list, help);
  refuse({}, "there is no command '" + words[0] + "'", list, suggestion(words[0], known) + help);
}

}  // namespace

void refuse_unknown_words(const CLI::App& app, const std::vector<std::string>& words) { refuse_in(app, words); }

void refuse_unknown_flag(const CLI::App& command, const std::string& where, const std::string& flag) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  refuse(where, "there is no flag '" + flag + "'", {},
         suggestion(flag, known) + "See " + full_name(command) + " --help.");
}

}  // namespace tigon::app
