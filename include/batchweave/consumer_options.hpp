// Settings of a consumer.
#pragma once

#include <batchweave/cursor.hpp>
#include <batchweave/watched_options.hpp>

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
class consumer_options : public watched_options<consumer_options> {
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
  /// Where slices live. Must outlive them. Default: the process's default resource.
  consumer_options& memory_resource(std::pmr::memory_resource* m) { memory_ = m; return *this; }
  /// Longest pause between two looks for a new version. Default 200 ms.
  consumer_options& poll_interval(duration d) { poll_ = d; return *this; }
  /// next() fails with waited_too_long, and says why, when no step arrives for this long. Default: waits for ever.
  consumer_options& max_wait(duration d) { max_wait_ = d; return *this; }

  const std::string& group() const noexcept { return group_; }
  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t world_size() const noexcept { return world_; }
  const std::optional<cursor>& start() const noexcept { return cursor_; }
  const std::optional<std::uint64_t>& start_at() const noexcept { return step_; }
  std::size_t prefetch() const noexcept { return prefetch_; }
  std::pmr::memory_resource* memory_resource() const noexcept { return memory_; }
  duration poll_interval() const noexcept { return poll_; }
  std::optional<duration> max_wait() const noexcept { return max_wait_; }

 private:
  std::string group_;
  std::uint32_t rank_ = 0;
  std::uint32_t world_ = 1;
  std::optional<cursor> cursor_;
  std::optional<std::uint64_t> step_;
  std::size_t prefetch_ = 4;
  std::pmr::memory_resource* memory_ = std::pmr::get_default_resource();
  duration poll_ = std::chrono::milliseconds(200);
  std::optional<duration> max_wait_;
};
static_assert(!std::is_aggregate_v<consumer_options>);

}  // namespace batchweave
