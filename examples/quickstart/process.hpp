// Child processes that are this same program, with a deadline, and that never outlive their parent.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace quickstart {

/// How a child ended.
class exit_report {
 public:
  explicit exit_report(int status) : status_(status) {}
  bool clean() const noexcept { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }
  bool killed_by(int signal) const noexcept { return WIFSIGNALED(status_) && WTERMSIG(status_) == signal; }
  std::string text() const {
    if (WIFEXITED(status_)) return "ended with exit code " + std::to_string(WEXITSTATUS(status_));
    if (killed_by(SIGALRM)) return "took longer than its time limit";
    return "was killed by signal " + std::to_string(WTERMSIG(status_));
  }

 private:
  int status_;
};

/// One child; the destructor kills it and waits for it. Move-only.
class process {
 public:
  process() = default;
  /// Starts this executable again with `arguments`. It gets SIGALRM after `seconds` and SIGKILL when the parent dies.
  process(const std::vector<std::string>& arguments, unsigned seconds) {
    std::vector<char*> argv;
    std::string name = "quickstart";
    argv.push_back(name.data());
    std::vector<std::string> copy = arguments;
    for (std::string& a : copy) argv.push_back(a.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);  // the parent died before the line above
      alarm(seconds);                       // survives execv
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
  }
  process(process&& o) noexcept : pid_(std::exchange(o.pid_, -1)) {}
  process& operator=(process&& o) noexcept {
    process taken(std::move(o));
    std::swap(pid_, taken.pid_);
    return *this;
  }
  ~process() {
    if (!running()) return;
    kill();
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

  bool running() const noexcept { return pid_ > 0; }
  pid_t pid() const noexcept { return pid_; }
  void kill() noexcept { ::kill(pid_, SIGKILL); }

  /// True once, when the child has ended; `how` then says how.
  bool ended(exit_report& how) {
    if (!running()) return false;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = -1;
    how = exit_report(status);
    return true;
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace quickstart
