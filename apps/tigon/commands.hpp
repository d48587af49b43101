#pragma once

namespace CLI {
class App;
}

namespace tigon::app {

// tigon bench ops
void add_bench(CLI::App& app);
// tigon plan
void add_plan(CLI::App& app);
// tigon train
void add_train(CLI::App& app);

}  // namespace tigon::app
