#include "unknown_words.hpp"

#include <algorithm>
#include <numeric>
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

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& fix) {
  throw Error(ErrorCode::invalid_argument, {.where = {}, .what = what, .expected = expected, .fix = fix});
}

void refuse_unknown_flags(const CLI::App& command, const std::string& name, int words, char** word) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& flag : option->get_lnames()) known.push_back("--" + flag);
  }
  for (int i = 0; i < words; ++i) {
    const std::string text = word[i], flag = text.substr(0, text.find('='));
    if (text == "--") return;
    if (flag.find(' ') != std::string::npos) continue;  // the value of one, such as flags for another program
    if (!text.starts_with("--") || std::find(known.begin(), known.end(), flag) != known.end()) continue;
    refuse("there is no flag '" + flag + "'", "", suggestion(flag, known) + "See " + name + " --help.");
  }
}

void refuse_in(const CLI::App& command, const std::string& above, int words, char** word) {
  const std::string name = above + command.get_name();
  const auto commands = command.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty() || (words > 0 && **word == '-')) return refuse_unknown_flags(command, name, words, word);
  std::vector<std::string> known;
  std::string list;
  for (const CLI::App* sub : commands) {
    if (words > 0 && sub->get_name() == *word) return refuse_in(*sub, name + " ", words - 1, word + 1);
    known.push_back(sub->get_name());
    list += (list.empty() ? "" : ", ") + sub->get_name();
  }
  if (words == 0) refuse("a command is missing", list, "See " + name + " --help.");
  refuse("there is no command '" + std::string(*word) + "'", list,
         suggestion(*word, known) + "See " + name + " --help.");
}

}  // namespace

void refuse_unknown_words(CLI::App& app, int words, char** word) { refuse_in(app, "", words, word); }

}  // namespace tigon::app
