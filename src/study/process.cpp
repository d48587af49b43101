#include "study/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "tigon/core/error.hpp"

extern char** environ;

namespace tigon {

namespace {

[[noreturn]] void fail(const std::filesystem::path& where, const char* what, int error) {
  throw Error(ErrorCode::io, {.where = where.string(), .what = std::string(what) + ": " + std::strerror(error)});
}

// Where the files of a child come from. It gets none of ours but these.
class FileActions {
 public:
  FileActions() { (void)posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { (void)posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

}  // namespace

Ended run_program(const std::filesystem::path& program, const std::vector<std::string>& words,
                  const std::filesystem::path& output, const std::atomic<bool>& stop) {
  FileActions actions;
  (void)posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  (void)posix_spawn_file_actions_addopen(actions.get(), STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                         0644);
  (void)posix_spawn_file_actions_adddup2(actions.get(), STDOUT_FILENO, STDERR_FILENO);
  std::vector<std::string> all = {program.string()};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // In a group of its own: Ctrl-C reaches us alone, and we say what becomes of it.
  posix_spawnattr_t attributes;
  (void)posix_spawnattr_init(&attributes);
  (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), actions.get(), &attributes, arguments.data(), environ);
  (void)posix_spawnattr_destroy(&attributes);
  if (error != 0) fail(program, "cannot be started", error);

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
