#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tigon::app {

// tigon bench ops
void add_bench(CLI::App& app);
// tigon eval
void add_eval(CLI::App& app, int& exit_code);
// tigon tokenize
void add_tokenize(CLI::App& app, int& exit_code);
// tigon help
void add_help(CLI::App& app);
// tigon merge
void add_merge(CLI::App& app);
// tigon plan
void add_plan(CLI::App& app);
// tigon report
void add_report(CLI::App& app);
// tigon sample
void add_sample(CLI::App& app, int& exit_code);
// tigon study. `words`: the command line, which is kept with the results. Sets the exit code where points failed or a
// signal stopped it.
void add_study(CLI::App& app, std::vector<std::string> words, int& exit_code);
// tigon train. A run that a signal cut short, with all of it saved and said, sets the exit code that shells give to
// whatever ends by that signal.
void add_train(CLI::App& app, int& exit_code);

}  // namespace tigon::app
