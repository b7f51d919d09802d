// Sealing: the entries of many versions become one index segment, so that newcomers and the log stay cheap whatever the history.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/patient_options.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/change.hpp>
#include <batchweave/commit/index.hpp>
#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/manifest/segment.hpp>
#include <batchweave/store/store.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave {

class seal_options;
class seal_report;
template <class Codecs = manifest::builtin_codecs, class Rules = commit::rules, object_store S>
asio::awaitable<seal_report> seal(S store, seal_options options);

class seal_options : public patient_options<seal_options> {
 public:
  seal_options() = default;
  /// Seals when at least this many versions are not sealed. Fewer: a newcomer finds its step with fewer requests; more: fewer commits.
  /// Default 64.
  seal_options& after_versions(std::uint64_t n) { after_ = std::max<std::uint64_t>(1, n); return *this; }
  /// Segments are merged up to about this size. Default 32 MiB, some 500,000 steps of fixed-size slices.
  seal_options& segment_bytes(std::uint64_t n) { bytes_ = n; return *this; }

  std::uint64_t after_versions() const noexcept { return after_; }
  std::uint64_t segment_bytes() const noexcept { return bytes_; }

 private:
  std::uint64_t after_ = 64;
  std::uint64_t bytes_ = std::uint64_t{32} << 20;
};
static_assert(!std::is_aggregate_v<seal_options>);

class seal_report {
 public:
  seal_report() = default;
  std::uint64_t sealed_step() const noexcept { return sealed_step_; }  ///< all steps below are in segments
  std::uint64_t versions() const noexcept { return versions_; }        ///< sealed by this call
  std::uint64_t segments() const noexcept { return segments_; }        ///< on the stream now

 private:
  template <class C, class R, object_store S>
  friend asio::awaitable<seal_report> seal(S, seal_options);
  std::uint64_t sealed_step_ = 0, versions_ = 0, segments_ = 0;
};

namespace detail {
/// One segment that would be sealed on `newest`: what is new, merged with the segments before it as long as they are no larger, so that
/// sizes grow geometrically and the list stays logarithmic.
class seal_plan {
 public:
  seal_plan() {}
  std::vector<manifest::segment_ref> merged;  // ascending
  std::vector<manifest::tgb_entry> fresh;
  std::uint64_t fresh_first = 0;
  std::uint64_t next_version = 0;
};

inline seal_plan plan_seal(const manifest::version& newest, const std::vector<std::shared_ptr<const manifest::version>>& versions,
                           std::uint64_t bytes_limit) {
  seal_plan plan;
  const manifest::summary& s = newest.summary;
  plan.fresh_first = std::max(s.sealed_step, s.trim_step);
  std::uint64_t bytes = 0;
  for (const auto& v : versions) {
    plan.next_version = v->number + 1;
    for (std::size_t i = 0; i < v->entries.size(); ++i) {
      if (v->first_step + i != plan.fresh_first + plan.fresh.size()) continue;
      plan.fresh.push_back(v->entries[i]);
      bytes += 64 + v->entries[i].producer.size() + v->entries[i].tag.size() + 4 * v->entries[i].layout.sizes.size();
    }
  }
  std::uint64_t count = plan.fresh.size();
  std::uint64_t first = plan.fresh_first;
  for (auto g = s.segments.rbegin(); g != s.segments.rend(); ++g) {
    const std::uint64_t steps = g->end - g->first;
    if (g->end != first || steps > count || bytes + g->bytes > bytes_limit) break;
    plan.merged.insert(plan.merged.begin(), *g);
    first = g->first;
    count += steps;
    bytes += g->bytes;
  }
  return plan;
}
}  // namespace detail

/// Seals the versions that are not sealed yet, if there are enough: writes their entries as one segment, merged with smaller ones before
/// it, then commits a version that names it. From then on those versions are dead and reclaim() may bury them, even before anything is
/// trimmed. Anyone may run it, at any time and concurrently: whoever is second finds it done. Killed at any instant it leaves at most
/// a segment that nothing names, which reclaim() removes. Producers do not seal on their own, so a commit stays one bounded write (I10);
/// run reclaim(), which seals, or this, every few hundred versions. Memory: the entries of one segment.
/// Requests for n versions: LIST + GET of the tail, n GETs (16 at a time), a GET for each merged segment, two PUTs.
/// Errors: stream_missing, undecided, retries_exhausted, damaged, those of the store. Cancellation: as if killed.
template <class Codecs, class Rules, object_store S>
asio::awaitable<seal_report> seal(S store, seal_options options) {
  std::uint64_t versions_at_once = 512;
  any_clock clock = options.clock();
  random64 random = options.random();
  const duration limit = options.give_up_after();
  seal_report report;
  auto describe = [&] { return commit::read_stream_info<Codecs>(store); };
  const result<manifest::stream_info> stream = co_await patiently(clock, random, limit, describe);
  if (!stream) throw error(in_context(stream.error(), "sealing"));
  std::uint64_t known = 0;
  for (unsigned races = 0; races < 16;) {
    const result<commit::tail_view> tail = co_await commit::await_tail<Codecs>(store, *stream, clock, random, limit, known);
    if (!tail) throw error(in_context(tail.error(), "sealing"));
    const manifest::version& newest = *tail->version;
    known = newest.number;
    report.sealed_step_ = newest.summary.sealed_step;
    report.segments_ = newest.summary.segments.size();
    const std::uint64_t first = newest.summary.oldest_version;
    if (newest.number < first || newest.number - first + 1 < options.after_versions()) co_return report;
    if (newest.summary.next_step <= std::max(newest.summary.sealed_step, newest.summary.trim_step)) co_return report;  // nothing but events
    const std::uint64_t last = std::min(newest.number, first + versions_at_once - 1);
    auto versions = co_await commit::read_versions<Codecs>(store, *stream, clock, limit, first, last);
    if (!versions) throw error(in_context(versions.error(), "sealing"));
    ++races;
    if (!versions->has_value()) continue;  // sealed and buried by somebody else meanwhile
    detail::seal_plan plan = detail::plan_seal(newest, **versions, options.segment_bytes());
    if (plan.fresh.empty()) {  // nothing but events so far: look further
      versions_at_once *= 2;
      continue;
    }

    manifest::segment_ref made;
    made.first = plan.merged.empty() ? plan.fresh_first : std::max(newest.summary.trim_step, plan.merged.front().first);
    made.end = plan.fresh_first + plan.fresh.size();
    made.nonce = id128::draw(random);
    std::vector<manifest::tgb_entry> entries;
    bool gone = false;
    for (const manifest::segment_ref& ref : plan.merged) {
      auto read = [&] { return commit::read_segment(store, *stream, ref); };
      auto older = co_await patiently(clock, random, limit, read);
      if (!older) throw error(in_context(older.error(), "sealing"));
      gone = gone || !older->has_value();
      if (gone) break;
      const std::uint64_t skip = ref.first < made.first ? std::min(made.first - ref.first, ref.end - ref.first) : 0;  // trimmed
      std::move((*older)->begin() + static_cast<std::ptrdiff_t>(skip), (*older)->end(), std::back_inserter(entries));
    }
    if (gone) continue;
    std::move(plan.fresh.begin(), plan.fresh.end(), std::back_inserter(entries));
    const auto object = manifest::encode_segment(stream->id, made.first, entries);
    made.bytes = object.size();
    const std::string key = manifest::seg_key(made.first, made.end, made.nonce);
    const const_buffers body{const_bytes(object.data(), object.size())};
    const put_condition always;
    auto write = [&] { return store.put(key, body, always); };
    const result<put_outcome> put = co_await patiently(clock, random, limit, write);
    if (!put) throw error(in_context(put.error(), "sealing"));
    commit::seal_steps wanted(made, plan.next_version);
    const result<commit::tail_view> done = co_await commit::commit_change<Codecs, Rules>(store, *stream, clock, random, limit, wanted);
    if (!done && done.error().code() == errc::object_changed) continue;
    if (!done) throw error(in_context(done.error(), store.name()));
    known = done->version->number;
    const auto& now = done->version->summary.segments;
    const bool ours = std::any_of(now.begin(), now.end(), [&](const auto& g) { return g.nonce == made.nonce; });
    if (ours) {
      report.versions_ += plan.next_version - first;
      races = 0;
    }
  }
  co_return report;
}

}  // namespace batchweave
