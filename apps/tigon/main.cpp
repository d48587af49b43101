#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "tigon/core/error.hpp"
#include "tigon/core/version.hpp"

int main(int argc, char** argv) {
  CLI::App app("Tigon: LLM training in little memory", "tigon");
  app.set_version_flag("--version", std::string("tigon ") + tigon::version());
  app.require_subcommand(1);
  app.footer(
      "Start with:  tigon bench ops --ops rmsnorm,fused_linear_cross_entropy --memory\nEvery command has its own "
      "--help.");
  tigon::app::add_bench(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tigon::Error& error) {
    fmt::print(stderr, "tigon: {}\n", error.what());
    return error.code() == tigon::ErrorCode::invalid_argument ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tigon: {}\n", error.what());
    return 1;
  }
}
