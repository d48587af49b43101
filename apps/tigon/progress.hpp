#pragma once

#include <string>

namespace tigon::app {

// One line on standard error that says what is being done: rewritten in place on a terminal, a line each elsewhere.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(int done, int total, const std::string& what);
  // Takes the line away, before something else is printed.
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace tigon::app
