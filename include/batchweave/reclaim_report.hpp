// Settings of a reclaim run, and what it did.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/patient_options.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/store/store.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave {

/// Settings of one reclaim run.
class reclaim_options : public patient_options<reclaim_options> {
 public:
  reclaim_options() = default;
  /// Only looks and counts: nothing is committed, written or removed. Off by default.
  reclaim_options& dry_run(bool on) { dry_ = on; return *this; }
  /// Keys removed or buried per second at most, so that ranks that read meanwhile do not starve. 0 (default): as fast as the store
  /// takes them; one that asks to slow down is obeyed either way.
  reclaim_options& keys_per_second(double n) { rate_ = std::max(0.0, n); return *this; }
  /// Keys in one removal request. At most 1000, the limit of S3; default 1000.
  reclaim_options& batch(std::size_t n) { batch_ = std::clamp<std::size_t>(n, 1, 1000); return *this; }
  /// Seals when at least this many versions are not sealed (see seal()); versions are buried once they are sealed. Default 64.
  reclaim_options& seal_after(std::uint64_t versions) { seal_ = std::max<std::uint64_t>(1, versions); return *this; }

  bool dry_run() const noexcept { return dry_; }
  double keys_per_second() const noexcept { return rate_; }
  std::size_t batch() const noexcept { return batch_; }
  std::uint64_t seal_after() const noexcept { return seal_; }

 private:
  bool dry_ = false;
  double rate_ = 0;
  std::size_t batch_ = 1000;
  std::uint64_t seal_ = 64;
};
static_assert(!std::is_aggregate_v<reclaim_options>);

/// One kind of object in a report.
class reclaim_count {
 public:
  reclaim_count() = default;
  std::uint64_t keys = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const reclaim_count&, const reclaim_count&) = default;
};

/// What a reclaim run did; a dry run: what it would have done. Failed keys are not counted; the next run finds them again.
/// In a bucket with versioning the removed bytes stay, behind delete markers, until a lifecycle rule expires noncurrent versions.
class reclaim_report {
 public:
  reclaim_report() = default;
  bool dry_run = false;
  std::uint64_t trim_step = 0;       ///< after the run
  std::uint64_t next_step = 0;       ///< of the version that the run judged by
  std::uint64_t sealed_step = 0;
  std::string held_by;               ///< the group that keeps trim_step where it is; empty without a group
  reclaim_count batches;             ///< below trim_step, with what fenced incarnations left under the same numbers
  reclaim_count orphans;             ///< the others that were never committed, of a fenced incarnation
  reclaim_count segments;            ///< index segments that nothing names
  reclaim_count marks;               ///< of checkpoints that are complete or void
  reclaim_count announcements;       ///< committed, or of a fenced incarnation
  reclaim_count versions;            ///< buried: replaced by an empty object, for good
  std::uint64_t uploads = 0;         ///< multipart uploads of fenced incarnations that were aborted
  std::uint64_t unknown_keys = 0;    ///< keys met that are none of the stream's; left alone
  std::uint64_t failed_keys = 0;
  std::vector<remove_failure> failures;  ///< the first 1000 of them

  std::uint64_t keys() const noexcept {
    return batches.keys + orphans.keys + segments.keys + marks.keys + announcements.keys + versions.keys;
  }
  std::uint64_t bytes() const noexcept {
    return batches.bytes + orphans.bytes + segments.bytes + marks.bytes + announcements.bytes + versions.bytes;
  }
};

}  // namespace batchweave
