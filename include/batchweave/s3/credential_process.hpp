// Keys from a program that the profile names (credential_process): started, read within bounds, and always reaped.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/s3/credential_text.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

extern char** environ;

namespace batchweave::s3 {
namespace detail {

/// A shell command whose standard output is a pipe. Destruction kills it with all its children, and reaps it.
class child_process {
 public:
  explicit child_process(const std::string& command) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, static_cast<short>(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK));
    std::string shell = "sh", option = "-c", text = command;
    char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
    if (::posix_spawn(&id_, "/bin/sh", &files, &how, arguments, environ) != 0) id_ = -1;
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    ::close(ends[1]);
    if (id_ < 0) ::close(ends[0]);
    else output_ = ends[0];
  }
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    if (output_ >= 0) ::close(output_);
    if (id_ <= 0) return;
    ::kill(-id_, SIGKILL);
    while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  bool started() const noexcept { return id_ > 0; }
  /// The reading end; the caller owns it from then on.
  int take_output() noexcept { return std::exchange(output_, -1); }
  /// Whether it has ended; `status` is then what waitpid says, or 0 when the program reaps all children itself.
  bool ended(int& status) noexcept {
    if (id_ <= 0) return true;
    const pid_t r = ::waitpid(id_, &status, WNOHANG);
    if (r == 0 || (r < 0 && errno == EINTR)) return false;
    if (r < 0) status = 0;
    id_ = -1;
    return true;
  }

 private:
  pid_t id_ = -1;
  int output_ = -1;
};

inline asio::awaitable<error_code> read_all(asio::posix::stream_descriptor& from, std::string& text, std::size_t most) {
  error_code ec;
  while (!ec && text.size() <= most) {
    char piece[4096];
    const asio::mutable_buffer into(piece, sizeof piece);
    const std::size_t n = co_await from.async_read_some(into, asio::redirect_error(asio::use_awaitable, ec));
    text.append(piece, n);
  }
  co_return ec;
}

}  // namespace detail

/// Runs `command` with /bin/sh and reads the JSON it prints. At most `limit` from start to end and 64 KiB of output; its standard error is the
/// program's own. errc::credentials_missing. Cancelling kills it. Source: AWS SDKs guide, "Process credential provider".
inline asio::awaitable<result<credentials>> process_credentials(std::string command, duration limit) {
  using namespace asio::experimental::awaitable_operators;
  constexpr std::size_t most = 64 * 1024;
  const std::string source = "credential_process";
  detail::child_process child(command);
  if (!child.started()) co_return detail::no_keys(source + ": no process could be started");
  asio::posix::stream_descriptor output(co_await asio::this_coro::executor, child.take_output());
  any_clock clock;
  const time_point end = clock.now() + limit;
  std::string text;
  // Reading ends with the pipe, the clock with the limit: whichever is first cancels the other.
  const auto first = co_await (detail::read_all(output, text, most) || clock.wait_until(end));
  if (first.index() == 1) co_return detail::no_keys(source + " took too long: it was killed");
  if (text.size() > most) co_return detail::no_keys(source + " printed more than 64 KiB");
  int status = 0;
  while (!child.ended(status)) {
    if (clock.now() >= end) co_return detail::no_keys(source + " closed its output but did not end: it was killed");
    co_await clock.wait_for(std::chrono::milliseconds(2));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    co_return detail::no_keys(source + (WIFEXITED(status) ? " ended with status " + std::to_string(WEXITSTATUS(status)) : std::string(" was killed by a signal")));
  }
  co_return credentials_of_json(text, source);
}

}  // namespace batchweave::s3
