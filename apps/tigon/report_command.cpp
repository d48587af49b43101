#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "commands.hpp"
#include "report/report.hpp"

namespace tigon::app {

namespace {

struct Flags {
  std::string folder, output;
};

void run(const Flags& flags) {
  const std::filesystem::path folder = flags.folder;
  const std::filesystem::path file =
      flags.output.empty() ? folder / "report.html" : std::filesystem::path(flags.output);
  const report::Summary summary = report::write_report(folder, file);
  for (const std::string& sentence : summary.headline) fmt::print("{}\n", sentence);
  for (const std::string& note : summary.notes) fmt::print("note: {}\n", note);
  if (!summary.headline.empty() || !summary.notes.empty()) fmt::print("\n");
  if (summary.points > 0) fmt::print("{} of {} points; ", summary.finished, summary.points);
  fmt::print("the page is {}\n", file.string());
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* report = app.add_subcommand("report", "Make one page of a study: charts, memory pictures, tables");
  const auto flags = std::make_shared<Flags>();
  report->add_option("DIR", flags->folder, "The study's folder, as tigon study writes it")->required()->type_name("");
  report->add_option("--output", flags->output, "Where the page goes (default: DIR/report.html)")->type_name("FILE");
  report->footer(
      "\nThe page is one file that needs no network: open it in a browser, print it, send it to others. Of a study "
      "that is\n"
      "still running, or that lacks files, it shows what is there and says what is not.\n\n"
      "Example:  tigon report study && xdg-open study/report.html");
  report->callback([flags] { run(*flags); });
}

}  // namespace tigon::app
