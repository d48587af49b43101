#pragma once

namespace CLI {
class App;
}

namespace tigon::app {

// tigon bench ops
void add_bench(CLI::App& app);

}  // namespace tigon::app
