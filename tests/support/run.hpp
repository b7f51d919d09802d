// Runs one coroutine to its end on a fresh io_context and returns its value, with a guard against hangs.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

namespace test {

inline constexpr std::chrono::seconds hang_guard{120};

/// run(context, coroutine): throws what the coroutine throws, std::runtime_error when it hangs.
inline void run(boost::asio::io_context& context, boost::asio::awaitable<void> work) {
  bool done = false;
  std::exception_ptr thrown;
  boost::asio::co_spawn(context, std::move(work), [&done, &thrown](std::exception_ptr e) {
    done = true;
    thrown = e;
  });
  context.restart();
  const auto limit = std::chrono::steady_clock::now() + hang_guard;
  while (!done && std::chrono::steady_clock::now() < limit && context.run_one_for(std::chrono::seconds(1)) + 1 != 0) {
    if (context.stopped() && !done) break;
  }
  // Handles that went out of scope have asked their coroutines to stop: let them, or their frames leak.
  context.restart();
  while (context.poll_one() != 0) {
  }
  if (thrown) std::rethrow_exception(thrown);
  if (!done) throw std::runtime_error("the coroutine did not finish");
}

inline void run(boost::asio::awaitable<void> work) {
  boost::asio::io_context context;
  run(context, std::move(work));
}

}  // namespace test
