#include "study/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "tigon/core/error.hpp"

namespace tigon {

namespace {

[[noreturn]] void fail(const std::filesystem::path& where, const char* what, int error) {
  throw Error(ErrorCode::io, {.where = where.string(), .what = std::string(what) + ": " + std::strerror(error)});
}

// A file that a child is to have, and that no other program gets.
class ChildFile {
 public:
  ChildFile(const std::filesystem::path& path, int flags) : handle_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (handle_ < 0) fail(path, "cannot be opened", errno);
  }
  ~ChildFile() { (void)::close(handle_); }
  ChildFile(const ChildFile&) = delete;
  ChildFile& operator=(const ChildFile&) = delete;
  int handle() const noexcept { return handle_; }

 private:
  int handle_;
};

// The child's part, in which only what a signal handler may do is allowed.
[[noreturn]] void become(const char* program, char* const* arguments, int input, int output, pid_t parent) {
  // In a group of its own: Ctrl-C reaches the study alone, and it says what becomes of the child.
  (void)::setpgid(0, 0);
  // A child must not outlive the study, however that ends: the next one would measure beside it, in the same folder.
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {
    (void)::dup2(input, STDIN_FILENO);
    (void)::dup2(output, STDOUT_FILENO);
    (void)::dup2(output, STDERR_FILENO);
    (void)::execv(program, arguments);
  }
  ::_exit(127);
}

}  // namespace

Ended run_program(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const std::filesystem::path& output, const std::atomic<bool>& stop) {
  if (::access(program.c_str(), X_OK) != 0) fail(program, "cannot be started", errno);
  const ChildFile nothing("/dev/null", O_RDONLY), written(output, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<std::string> all = {program.string()};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t self = ::getpid(), child = ::fork();
  if (child < 0) fail(program, "cannot be started", errno);
  if (child == 0) become(program.c_str(), arguments.data(), nothing.handle(), written.handle(), self);

  Ended ended;
  while (true) {
    int status = 0;
    const pid_t got = waitpid(child, &status, WNOHANG);
    if (got < 0 && errno != EINTR) fail(program, "cannot be waited for", errno);
    if (got == child) {
      if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
      return ended;
    }
    if (stop && !ended.stopped) {
      ended.stopped = true;
      (void)::kill(child, SIGTERM);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::filesystem::path this_program() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("/proc/self/exe", "this program's file is not known", error.value());
  return path;
}

}  // namespace tigon
