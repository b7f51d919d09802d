// Runs the same job for many indices, a bounded number at a time.
#pragma once

#include <batchweave/aio/task_group.hpp>

#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace batchweave {

namespace detail {
template <class Job>
class parallel_state {
 public:
  parallel_state(std::size_t n, Job j, asio::any_io_executor ex) : count(n), job(std::move(j)), tasks(std::move(ex)) {}
  std::size_t count;
  std::size_t next = 0;
  bool stop = false;
  Job job;
  task_group tasks;

  static asio::awaitable<void> work(std::shared_ptr<parallel_state> s) {
    while (!s->stop && s->next < s->count) {
      const std::size_t i = s->next++;
      const bool more = co_await s->job(i);
      if (!more) s->stop = true;
    }
  }
};

class cancel_when_left {
 public:
  explicit cancel_when_left(task_group g) : group_(std::move(g)) {}
  cancel_when_left(const cancel_when_left&) = delete;
  cancel_when_left& operator=(const cancel_when_left&) = delete;
  ~cancel_when_left() { group_.cancel(); }

 private:
  task_group group_;
};
}  // namespace detail

/// Awaits `job(i)` for i = 0 .. n-1, started in this order, at most `width` at a time; a job that returns false lets no further one start.
/// `job` is copied and returns asio::awaitable<bool>; it must own, or share, all it uses: when the caller is cancelled the jobs are asked
/// to stop but may end later. Rethrows the first exception of a job. Jobs run on a strand of the caller's executor.
template <class Job>
asio::awaitable<void> parallel_for(std::size_t n, std::size_t width, Job job) {
  const asio::any_io_executor base = co_await asio::this_coro::executor;
  const asio::any_io_executor strand = asio::make_strand(base);
  auto state = std::make_shared<detail::parallel_state<Job>>(n, std::move(job), strand);
  const detail::cancel_when_left guard(state->tasks);
  for (std::size_t i = 0; i < std::min(n, std::max<std::size_t>(1, width)); ++i) {
    state->tasks.spawn(detail::parallel_state<Job>::work(state));
  }
  co_await state->tasks.join();
}

}  // namespace batchweave
