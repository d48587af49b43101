#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "speaker.hpp"
#include "tigon/train/run.hpp"

namespace tigon::app {

// To standard output. Where that is gone, with a closed terminal, the run goes on; main() finds out at the end.
template <class... Args>
void show(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
  (void)std::fflush(stdout);
}

// Text that a model or a file made up: what would steer a terminal is shown as a dot.
std::string harmless(std::string text);

// "0:07", "1:02:03", "2 d 03 h".
std::string duration(double seconds);

// A run on the screen: what it is, then a line per step: rewritten in place on a terminal, as much of it as fits; plain
// lines elsewhere.
class Screen final : public RunObserver {
 public:
  // `speaker`: for texts (RunOptions::sample_every); null: none.
  explicit Screen(int64_t print_every, const Speaker* speaker = nullptr);
  // Whatever is said next, an error above all, begins a line of its own.
  ~Screen() override;
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void on_start(const Trainer& trainer, const Sampler& data, int64_t first_step) override;
  void on_step(const StepLine& line) override;
  void on_evaluation(int64_t step, double loss) override;
  std::string speak(Trainer& trainer) override;
  void on_checkpoint(const std::filesystem::path& path) override;
  void on_message(const std::string& text) override;

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_left(int64_t step);
  void print_line(const std::string& text);
  std::string fitting(const std::vector<std::string>& fields, int64_t step) const;

  int64_t steps_ = 0, every_;
  const Speaker* speaker_;
  int64_t timed_from_ = -1;  // the step after which time is taken; the first one also warms up
  Clock::time_point begin_;
  bool terminal_, within_line_ = false;
};

}  // namespace tigon::app
