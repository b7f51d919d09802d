// A child process that dies with this one, and one that answers line by line.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace bench {

/// Runs a program found by PATH; ended when this object or this process goes away. Start it before any thread.
class child_process {
 public:
  /// `in`, `out`: what its standard input and output are; -1: /dev/null. `environment`: "NAME=value" added to this process's own.
  /// `keep`: descriptors that it inherits.
  explicit child_process(const std::vector<std::string>& command, int in = -1, int out = -1, const std::vector<std::string>& environment = {},
                         const std::vector<int>& keep = {}) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(0);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(in < 0 ? nothing : in, 0);
    ::dup2(out < 0 ? nothing : out, 1);
    for (const int fd : keep) ::fcntl(fd, F_SETFD, 0);
    for (const std::string& e : environment) ::putenv(const_cast<char*>(e.c_str()));
    std::vector<char*> arguments;
    for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    if (!running()) return;
    ::kill(pid_, SIGTERM);
    for (int i = 0; i < 200 && running(); ++i) ::usleep(10000);
    if (!running()) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  /// Nothing when it has ended.
  void signal(int number) {
    if (running()) ::kill(pid_, number);
  }
  bool running() {
    if (pid_ >= 0 && ::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
    return pid_ >= 0;
  }

 private:
  pid_t pid_ = -1;
};

/// A child that answers each line with a line.
class line_child {
 public:
  explicit line_child(const std::vector<std::string>& command, const std::vector<std::string>& environment = {})
      : ends_(), child_(command, ends_.child_in, ends_.child_out, environment) {
    ends_.hand_over();
  }
  /// One line of its output, without the line end; throws when it has ended.
  std::string read() {
    std::string line;
    char c;
    for (;;) {
      const ssize_t n = ::read(ends_.from, &c, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error("the child process ended");
      if (c == '\n') return line;
      line += c;
    }
  }
  std::string ask(std::string line) {
    line += '\n';
    if (::write(ends_.to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) throw std::runtime_error("the child process ended");
    return read();
  }

 private:
  struct pipes {
    pipes() {
      int in[2], out[2];
      if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
      child_in = in[0], to = in[1], from = out[0], child_out = out[1];
    }
    ~pipes() {
      hand_over();
      ::close(to);
      ::close(from);
    }
    void hand_over() {
      if (child_in >= 0) ::close(child_in), ::close(child_out);
      child_in = child_out = -1;
    }
    int child_in, child_out, to, from;
  };
  pipes ends_;
  child_process child_;
};

}  // namespace bench
