// Settings of a producer, and what it has done.
#pragma once

#include <batchweave/watched_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>

namespace batchweave {

/// Settings of one producer.
class producer_options : public watched_options<producer_options> {
 public:
  /// `id`: the identity whose sequence numbers and state survive restarts; 1 to 128 characters of [A-Za-z0-9._-].
  explicit producer_options(std::string id) : id_(std::move(id)) {}

  /// publish() returns when fewer than this many uploads, the newest included, are unacknowledged. 1 (default): it returns when its
  /// own batch is durable.
  producer_options& uploads_in_flight(std::size_t n) { uploads_ = std::max<std::size_t>(1, n); return *this; }
  /// No uploaded batch waits longer than this for a commit attempt, whatever interval the policy draws; but with so many producers that
  /// all of them together would ask more of the log than it takes, the policy's own floor holds (dac: see soonest()). Default 10 s.
  producer_options& max_visibility_delay(duration d) { visibility_ = d; return *this; }
  /// Back-pressure: publish() waits while the stream, with what this producer has not committed yet, is this many steps ahead of the
  /// slowest group's newest checkpoint (of the trim step while there is no group), so choose more than the steps between two
  /// checkpoints. 0 (default): no bound.
  producer_options& max_lead_steps(std::uint64_t n) { lead_steps_ = n; return *this; }
  /// The same in bytes, estimated as that lead times the mean size of this producer's batches. 0 (default): no bound.
  producer_options& max_lead_bytes(std::uint64_t n) { lead_bytes_ = n; return *this; }
  /// Slices start at multiples of this power of two. Default 8.
  producer_options& alignment(std::uint32_t a) { alignment_ = a; return *this; }

  const std::string& id() const noexcept { return id_; }
  std::size_t uploads_in_flight() const noexcept { return uploads_; }
  duration max_visibility_delay() const noexcept { return visibility_; }
  std::uint64_t max_lead_steps() const noexcept { return lead_steps_; }
  std::uint64_t max_lead_bytes() const noexcept { return lead_bytes_; }
  std::uint32_t alignment() const noexcept { return alignment_; }

 private:
  std::string id_;
  std::size_t uploads_ = 1;
  duration visibility_ = std::chrono::seconds(10);
  std::uint64_t lead_steps_ = 0;
  std::uint64_t lead_bytes_ = 0;
  std::uint32_t alignment_ = 8;
};
static_assert(!std::is_aggregate_v<producer_options>);

namespace detail {
struct producer_state;
}

/// What a producer has done since it was opened.
class producer_stats {
 public:
  std::uint64_t commits() const noexcept { return commits_; }      ///< versions of ours that became part of the log
  std::uint64_t attempts() const noexcept { return attempts_; }    ///< conditional PUTs of a version
  std::uint64_t conflicts() const noexcept { return conflicts_; }  ///< attempts that somebody else won
  std::uint64_t batches() const noexcept { return batches_; }      ///< TGBs of ours committed, by whomever
  std::uint64_t bytes() const noexcept { return bytes_; }          ///< their object bytes
  std::uint64_t carried() const noexcept { return carried_; }      ///< TGBs of others in our commits
  /// From the call of publish() to the commit, one for each committed TGB; the latest 65,536.
  const std::deque<duration>& visible() const noexcept { return visible_; }

 private:
  friend struct detail::producer_state;
  std::uint64_t commits_ = 0, attempts_ = 0, conflicts_ = 0, batches_ = 0, carried_ = 0, bytes_ = 0;
  std::deque<duration> visible_;
};

}  // namespace batchweave
