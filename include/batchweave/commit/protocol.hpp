// The commit as pure decisions: what the tail says about a producer, and the version that would follow it.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/manifest/stream_info.hpp>
#include <batchweave/manifest/version.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave::commit {

/// One incarnation of a producer. `owner` is random, so that two incarnations that raise the epoch at the same moment differ.
class incarnation {
 public:
  incarnation() = default;
  incarnation(std::string p, std::uint64_t e, id128 o) : producer(std::move(p)), epoch(e), owner(o) {}
  std::string producer;
  std::uint64_t epoch = 0;
  id128 owner;
};

/// The version before the first: never stored.
inline manifest::version genesis(const manifest::stream_info& stream) {
  manifest::version v;
  v.number = 0;
  v.stream_id = stream.id;
  v.summary.oldest_version = 1;
  return v;
}

inline const manifest::producer_entry* find_producer(const manifest::summary& s, std::string_view id) {
  const auto at = std::lower_bound(s.producers.begin(), s.producers.end(), id,
                                   [](const manifest::producer_entry& p, std::string_view i) { return p.id < i; });
  return at != s.producers.end() && at->id == id ? &*at : nullptr;
}

inline bool is_current(const manifest::producer_entry* p, const incarnation& me) {
  return p && p->epoch == me.epoch && p->owner == me.owner;
}

/// Producers whose last commit lies within the recent window of versions; everybody who reads the same version counts the same.
inline unsigned active_producers(const manifest::version& v) {
  std::uint64_t open = 0;
  for (const auto& p : v.summary.producers) open += !p.finished && !p.retired;
  const std::uint64_t window = std::max<std::uint64_t>(16, 4 * open);
  unsigned n = 0;
  for (const auto& p : v.summary.producers) n += !p.finished && !p.retired && p.last_version + window >= v.number;
  return n;
}

inline failure fenced(const manifest::producer_entry* winner, const incarnation& me) {
  std::string text = "producer " + me.producer + " epoch " + std::to_string(me.epoch) + " owner " + me.owner.to_string() + ": ";
  if (winner) {
    text += "epoch " + std::to_string(winner->epoch) + " owner " + winner->owner.to_string() +
            " took over; this incarnation must stop";
  } else {
    text += "the stream no longer knows this producer; it was retired";
  }
  return failure(errc::fenced, std::move(text));
}

namespace detail {
inline manifest::version successor(const manifest::version& tail, id128 nonce, std::int64_t unix_ns) {
  manifest::version v;
  v.number = tail.number + 1;
  v.stream_id = tail.stream_id;
  v.nonce = nonce;
  v.unix_ns = unix_ns;
  v.summary = tail.summary;
  v.first_step = tail.summary.next_step;
  return v;
}
inline manifest::producer_entry& entry_of(manifest::summary& s, std::string_view id) {
  const auto at = std::lower_bound(s.producers.begin(), s.producers.end(), id,
                                   [](const manifest::producer_entry& p, std::string_view i) { return p.id < i; });
  if (at != s.producers.end() && at->id == id) return *at;
  manifest::producer_entry fresh;
  fresh.id = std::string(id);
  return *s.producers.insert(at, std::move(fresh));
}
}  // namespace detail

/// The version that raises the epoch of `producer` and so fences every older incarnation (I4).
/// Errors: stream_closed when the stream has ended.
inline result<manifest::version> propose_open(const manifest::version& tail, std::string_view producer, id128 owner,
                                              std::int64_t unix_ns) {
  if (tail.summary.closed) {
    return failure(errc::stream_closed, "producer " + std::string(producer) + ": the stream ended at step " +
                                            std::to_string(tail.summary.final_step))
        .with_fate(fate::did_not_happen);
  }
  manifest::version v = detail::successor(tail, owner, unix_ns);
  manifest::producer_entry& p = detail::entry_of(v.summary, producer);
  ++p.epoch;
  p.owner = owner;
  p.finished = false;
  p.retired = false;
  p.last_version = v.number;
  manifest::event e;
  e.kind = manifest::event_kind::producer_opened;
  e.producer = p.id;
  e.epoch = p.epoch;
  e.owner = owner;
  v.events.push_back(std::move(e));
  return v;
}

/// The version that adds `batches` (consecutive seqs, the first equal to the producer's next_seq: I3), and with `finish` ends the
/// producer. When every producer has finished and at least `expected_producers` are known, the stream closes at its final step.
/// Errors: fenced; bug when the seqs do not continue what is committed.
inline result<manifest::version> propose_commit(const manifest::version& tail, const incarnation& me,
                                                std::span<const manifest::tgb_entry> batches, bool finish,
                                                std::uint64_t expected_producers, id128 nonce, std::int64_t unix_ns) {
  const manifest::producer_entry* known = find_producer(tail.summary, me.producer);
  if (!is_current(known, me)) return fenced(known, me);
  if (tail.summary.closed) return failure(errc::stream_closed, "producer " + me.producer + ": the stream has ended");
  std::uint64_t seq = known->next_seq;
  for (const auto& b : batches) {
    if (b.producer != me.producer || b.epoch != me.epoch || b.seq != seq) {
      return failure(errc::bug, "producer " + me.producer + ": seq " + std::to_string(b.seq) + " does not continue the committed " +
                                    std::to_string(seq));
    }
    ++seq;
  }
  manifest::version v = detail::successor(tail, nonce, unix_ns);
  v.entries.assign(batches.begin(), batches.end());
  v.summary.next_step += batches.size();
  manifest::producer_entry& p = detail::entry_of(v.summary, me.producer);
  p.next_seq = seq;
  p.last_version = v.number;
  if (!batches.empty()) p.last_tgb = batches.back();
  if (finish) {
    p.finished = true;
    manifest::event e;
    e.kind = manifest::event_kind::producer_finished;
    e.producer = me.producer;
    e.epoch = me.epoch;
    e.owner = me.owner;
    v.events.push_back(std::move(e));
    std::uint64_t known_producers = 0;
    bool all = true;
    for (const auto& q : v.summary.producers) {
      known_producers += 1;
      all = all && (q.finished || q.retired);
    }
    if (all && known_producers >= expected_producers) {
      v.summary.closed = true;
      v.summary.final_step = v.summary.next_step;
      manifest::event closed;
      closed.kind = manifest::event_kind::stream_closed;
      closed.step = v.summary.final_step;
      v.events.push_back(std::move(closed));
    }
  }
  return v;
}

/// Whether what `proposed` was to achieve for `me` is in `tail` (or any version before it): the producer state carried forward decides,
/// so the answer is right even when the proposed version itself was reclaimed, and whoever's retry it was that landed.
inline bool contains(const manifest::version& tail, const manifest::version& proposed, const incarnation& me) {
  const manifest::producer_entry* now = find_producer(tail.summary, me.producer);
  const manifest::producer_entry* wanted = find_producer(proposed.summary, me.producer);
  if (!now || !wanted || !is_current(now, me)) return false;
  return now->next_seq >= wanted->next_seq && (now->finished || !wanted->finished);
}

}  // namespace batchweave::commit
