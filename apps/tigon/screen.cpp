#include "screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include "model_flags.hpp"

namespace tigon::app {

namespace {

// One column stays free: what is written into the last one makes some terminals go to the next line.
int64_t columns() {
  winsize size{};
  return (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80) - 1;
}

std::string bar(int64_t step, int64_t steps, int64_t width) {
  const int64_t full = steps > 0 ? width * step / steps : width;
  std::string text;
  for (int64_t i = 0; i < width; ++i) text += i < full ? "█" : "░";
  return text;
}

}  // namespace

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 86400) return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string harmless(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '.';
  }
  return text;
}

Screen::Screen(int64_t print_every, const Speaker* speaker)
    : every_(print_every), speaker_(speaker), terminal_(isatty(STDOUT_FILENO) == 1) {}

Screen::~Screen() {
  if (within_line_) (void)std::fputs("\n", stdout);
}

void Screen::on_start(const Trainer& trainer, const Sampler& data, int64_t first_step) {
  const TrainConfig& train = trainer.config();
  steps_ = train.steps;
  std::string source = data.description();
  if (data.windows() > 0) {
    const auto samples = static_cast<double>(steps_ * train.batch * train.accumulate);
    source += fmt::format("; {} steps are {:.3g} epochs", steps_, samples / static_cast<double>(data.windows()));
  } else {
    source += ": for time and memory, there is nothing to learn (--data)";
  }
  const std::string disk = trainer.disk_text();
  // At once: where nobody reads any more, a signal comes with the next text, and by then there is a step to save.
  const ParameterList& parameters = trainer.parameters();
  const std::string adapters = train.lora.any() ? fmt::format("{:.2f} M in adapters ({}) beside frozen ",
                                                              static_cast<double>(parameters.trained_elements()) * 1e-6,
                                                              lora_to_string(train.lora))
                                                : "";
  show("{}{:.2f} M parameters{}, {} × {} tokens{}, {}\nrecompute {}, fused {}, loss by {} tokens{}\n{}\n\n{}{}\n{}",
       adapters,
       static_cast<double>(parameters.elements() - (train.lora.any() ? parameters.trained_elements() : 0)) * 1e-6,
       train.base == BaseFormat::nf4 ? ", their blocks in NF4" : "", train.batch, train.seq,
       train.accumulate > 1 ? fmt::format(" × {}", train.accumulate) : "", train.precision.name,
       recompute_to_string(train.memory.recompute), fused_to_string(train.fused), loss_chunk(trainer.model(), train),
       homes_text(train), source, plan_table(trainer.plan()), disk.empty() ? "" : "  there: " + disk + "\n",
       first_step > 0 ? fmt::format("resumed after step {}\n", first_step) : "");
}

void Screen::on_step(const StepLine& line) {
  const StepReport& r = line.report;
  // What matters most comes first: a narrow terminal has no room for the rest.
  std::vector<std::string> fields = {fmt::format("step {}/{}", r.step, steps_),
                                     line.counted > 0 ? fmt::format("loss {:.4f}", r.loss) : "all labels ignored"};
  if (r.skipped) fields.push_back(fmt::format("skipped, overflow at scale {:.0f}", r.loss_scale));
  fields.push_back(fmt::format("{:.0f} tokens/s", line.tokens_per_second));
  if (line.counted < r.tokens) {
    const double share = static_cast<double>(line.counted) / static_cast<double>(r.tokens);
    fields.back() += fmt::format(", {:.0f} count", share * line.tokens_per_second);
  }
  if (const double left = seconds_left(r.step); left > 0) fields.push_back(duration(left) + " left");
  fields.push_back(human_bytes(line.planned_bytes));
  if (line.shows_waits) {
    fields.push_back(fmt::format("compute {:.0f}% copies {:.0f}% update {:.0f}%", 100 * line.compute_share(),
                                 100 * line.waits.copies, 100 * line.waits.updates));
    if (line.shows_disk) fields.back() += fmt::format(" disk {:.0f}%", 100 * line.waits.disk);
  }
  fields.push_back(fmt::format("norm {:.3f}", r.grad_norm));
  fields.push_back(fmt::format("lr {:.2e}", r.lr));
  if (line.epoch > 0) fields.push_back(fmt::format("epoch {:.2f}", line.epoch));
  if (line.gemm_share > 0) fields.push_back(fmt::format("{:.0f}% of GEMM", 100 * line.gemm_share));

  const bool keeps = r.step == steps_ || r.step % every_ == 0;
  if (terminal_) {
    show("\r\033[K{}", fitting(fields, r.step));
    within_line_ = !(keeps && every_ > 1);
    if (!within_line_) show("\n");
  } else if (keeps) {
    show("{}\n", fmt::join(fields, "  "));
  }
}

void Screen::on_evaluation(int64_t step, double loss) {
  print_line(fmt::format("step {}  evaluation loss {:.4f}", step, loss));
}
std::string Screen::speak(Trainer& trainer) {
  if (speaker_ == nullptr) return {};
  std::string text = speaker_->speak(trainer);
  print_line(fmt::format("step {}  says: {}", trainer.step(), terminal_ ? harmless(text) : text));
  return text;
}
void Screen::on_checkpoint(const std::filesystem::path& path) { print_line("saved " + path.string()); }
void Screen::on_message(const std::string& text) { print_line(text); }

// By the mean of all steps of this run but the first, with what was saved and evaluated in between; 0: not known yet.
double Screen::seconds_left(int64_t step) {
  const Clock::time_point now = Clock::now();
  if (timed_from_ < 0) {
    timed_from_ = step;
    begin_ = now;
  }
  if (step <= timed_from_) return 0;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  return seconds / static_cast<double>(step - timed_from_) * static_cast<double>(steps_ - step);
}

void Screen::print_line(const std::string& text) {
  show("{}{}\n", terminal_ ? "\r\033[K" : "", text);
  within_line_ = false;
}

// The fields up to the first that has no room, and a bar where there is some left. Each is as long as its bytes.
std::string Screen::fitting(const std::vector<std::string>& fields, int64_t step) const {
  constexpr int64_t kGap = 2, kShortestBar = 8, kLongestBar = 20;
  int64_t room = columns();
  std::string text;
  for (const std::string& field : fields) {
    const int64_t width = static_cast<int64_t>(field.size()) + (text.empty() ? 0 : kGap);
    if (width > room) return text;
    text += (text.empty() ? "" : "  ") + field;
    room -= width;
  }
  if (room < kShortestBar + 1) return text;
  return bar(step, steps_, std::min(room - 1, kLongestBar)) + " " + text;
}

}  // namespace tigon::app
