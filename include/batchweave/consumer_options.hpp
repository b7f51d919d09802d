// Settings of a consumer.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/base/metrics.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/cursor.hpp>
#include <batchweave/waiting.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace batchweave {

/// Settings of one consumer: one rank of one group. Where to start must be said: start(cursor) or start_at(step).
class consumer_options {
 public:
  /// `group`: the training run or evaluator, 1 to 128 characters of [A-Za-z0-9._-].
  explicit consumer_options(std::string group) : group_(std::move(group)) {}

  /// 0 <= rank < world_size. Default 0.
  consumer_options& rank(std::uint32_t r) { rank_ = r; return *this; }
  /// Number of data-parallel ranks; must divide the slices per step; may differ from run to run. Default 1.
  consumer_options& world_size(std::uint32_t n) { world_ = n; return *this; }
  /// Continue exactly there. An empty cursor, or one of another stream, is an error at open.
  consumer_options& start(cursor c) { cursor_ = std::move(c); step_.reset(); return *this; }
  /// Start at a step that the caller names, 0 for the first of the stream.
  consumer_options& start_at(std::uint64_t step) { step_ = step; cursor_.reset(); return *this; }
  /// Steps fetched ahead of delivery, as far as the budget allows. Default 4.
  consumer_options& prefetch(std::size_t steps) { prefetch_ = std::max<std::size_t>(1, steps); return *this; }
  /// Bounds the bytes that are fetched but not delivered; share one among roles. Default: 256 MiB of its own.
  consumer_options& budget(memory_budget b) { budget_ = std::move(b); return *this; }
  /// Where slices live. Must outlive them. Default: the process's default resource.
  consumer_options& memory_resource(std::pmr::memory_resource* m) { memory_ = m; return *this; }
  /// Longest pause between two looks for a new version. Default 200 ms.
  consumer_options& poll_interval(duration d) { poll_ = d; return *this; }
  /// next() fails with waited_too_long, and says why, when no step arrives for this long. Default: waits for ever.
  consumer_options& max_wait(duration d) { max_wait_ = d; return *this; }
  /// How long an operation keeps trying while the store is down or throttles. Default 10 min.
  consumer_options& give_up_after(duration d) { patience_ = d; return *this; }
  /// Hears of every wait in next() that lasts `bound`, and again after each further `bound`. Default: nobody.
  consumer_options& on_wait(wait_listener f, duration bound = std::chrono::seconds(30)) {
    on_wait_ = std::move(f);
    wait_bound_ = bound;
    return *this;
  }
  /// Where measurements go; the label is group/rank. Default: nowhere.
  consumer_options& metrics(any_metrics m) { metrics_ = std::move(m); return *this; }
  consumer_options& clock(any_clock c) { clock_ = std::move(c); return *this; }
  consumer_options& seed(std::uint64_t s) { random_ = random64(s); return *this; }

  const std::string& group() const noexcept { return group_; }
  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t world_size() const noexcept { return world_; }
  const std::optional<cursor>& start() const noexcept { return cursor_; }
  const std::optional<std::uint64_t>& start_at() const noexcept { return step_; }
  std::size_t prefetch() const noexcept { return prefetch_; }
  const memory_budget& budget() const noexcept { return budget_; }
  std::pmr::memory_resource* memory_resource() const noexcept { return memory_; }
  duration poll_interval() const noexcept { return poll_; }
  std::optional<duration> max_wait() const noexcept { return max_wait_; }
  duration give_up_after() const noexcept { return patience_; }
  const wait_listener& on_wait() const noexcept { return on_wait_; }
  duration wait_bound() const noexcept { return wait_bound_; }
  const any_metrics& metrics() const noexcept { return metrics_; }
  const any_clock& clock() const noexcept { return clock_; }
  random64 random() const noexcept { return random_; }

 private:
  std::string group_;
  std::uint32_t rank_ = 0;
  std::uint32_t world_ = 1;
  std::optional<cursor> cursor_;
  std::optional<std::uint64_t> step_;
  std::size_t prefetch_ = 4;
  memory_budget budget_;
  std::pmr::memory_resource* memory_ = std::pmr::get_default_resource();
  duration poll_ = std::chrono::milliseconds(200);
  std::optional<duration> max_wait_;
  duration patience_ = std::chrono::minutes(10);
  wait_listener on_wait_;
  duration wait_bound_ = std::chrono::seconds(30);
  any_metrics metrics_;
  any_clock clock_;
  random64 random_;
};
static_assert(!std::is_aggregate_v<consumer_options>);

}  // namespace batchweave
