// The commit as pure decisions: what the tail says about a producer, and the version that would follow it.
#pragma once

#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/manifest/stream_info.hpp>
#include <batchweave/manifest/version.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Producers that are at work: those whose TGBs were committed, by whomever, within the recent window of versions. The window is
/// 16 + 4 * the median age (in versions) of those inside it, so it follows what it sees: with N producers that commit in turn it is about
/// 2 N versions wide, when every version carries everybody it is 16, and those who left fall out of it after as many versions.
/// Everybody who reads the same version counts the same.
inline unsigned active_producers(const manifest::version& v) {
  std::vector<std::uint64_t> ages;
  ages.reserve(v.summary.producers.size());
  for (const auto& p : v.summary.producers) {
    if (!p.finished && !p.retired) ages.push_back(v.number - p.last_version);
  }
  std::sort(ages.begin(), ages.end());
  std::size_t n = 0;
  while (n < ages.size() && ages[n] <= 16 + 4 * ages[n / 2]) ++n;
  return static_cast<unsigned>(n);
}

/// Producers that are on the stream and may publish again.
inline std::size_t open_producers(const manifest::summary& s) {
  return static_cast<std::size_t>(
      std::count_if(s.producers.begin(), s.producers.end(), [](const manifest::producer_entry& p) { return !p.finished && !p.retired; }));
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
/// Errors: stream_closed when the stream has ended; invalid_argument when a round_robin stream has all its producers already.
inline result<manifest::version> propose_open(const manifest::version& tail, const manifest::stream_info& stream,
                                              std::string_view producer, id128 owner, std::int64_t unix_ns) {
  if (tail.summary.closed) {
    return failure(errc::stream_closed, "producer " + std::string(producer) + ": the stream ended at step " +
                                            std::to_string(tail.summary.final_step))
        .with_fate(fate::did_not_happen);
  }
  if (stream.order == manifest::order_round_robin && tail.summary.producers.size() >= stream.producers &&
      !find_producer(tail.summary, producer)) {
    std::string known;
    for (const auto& p : tail.summary.producers) known += (known.empty() ? "" : ", ") + p.id;
    return failure(errc::invalid_argument, "producer " + std::string(producer) + ": this round_robin stream is for " +
                                               std::to_string(stream.producers) + " producers and has them: " + known)
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

/// What a producer wants to commit.
class commit_request {
 public:
  commit_request() {}
  /// Durable TGBs of the committer: consecutive seqs, the first equal to its committed next_seq.
  commit_request& batches(std::span<const manifest::tgb_entry> b) { batches_ = b; return *this; }
  /// Durable TGBs that others announced, in any order. Those that do not continue their producer's committed seqs, or belong to another
  /// epoch than its current one, are left out.
  commit_request& carried(std::span<const manifest::tgb_entry> c) { carried_ = c; return *this; }
  /// End the committer, once all of `batches` are taken.
  commit_request& finish(bool f) { finish_ = f; return *this; }
  commit_request& nonce(id128 n) { nonce_ = n; return *this; }
  /// Wall clock; for people.
  commit_request& unix_ns(std::int64_t t) { unix_ns_ = t; return *this; }

  std::span<const manifest::tgb_entry> batches() const noexcept { return batches_; }
  std::span<const manifest::tgb_entry> carried() const noexcept { return carried_; }
  bool finish() const noexcept { return finish_; }
  id128 nonce() const noexcept { return nonce_; }
  std::int64_t unix_ns() const noexcept { return unix_ns_; }

 private:
  std::span<const manifest::tgb_entry> batches_, carried_;
  bool finish_ = false;
  id128 nonce_;
  std::int64_t unix_ns_ = 0;
};

/// TGBs in one version at most; bounds a commit whatever the backlog (I10).
inline constexpr std::size_t batches_per_version = 4096;

/// Whose turn the next step of a round_robin stream is: of the producers that have neither finished nor retired the one with the lowest
/// next_seq, the lowest id first. So the order depends on how many batches each producer has and on nothing else. Null while fewer
/// than stream.producers are known, and when all have finished.
inline const manifest::producer_entry* turn(const manifest::summary& s, const manifest::stream_info& stream) {
  if (s.producers.size() < stream.producers) return nullptr;
  const manifest::producer_entry* next = nullptr;
  for (const manifest::producer_entry& p : s.producers) {
    if (p.finished || p.retired) continue;
    if (!next || p.next_seq < next->next_seq) next = &p;
  }
  return next;
}

namespace detail {
/// Adds `e` as the next step when it continues its producer's committed seqs in the current epoch (I3, I4).
inline bool take(manifest::version& v, const manifest::tgb_entry& e) {
  if (!find_producer(v.summary, e.producer)) return false;
  manifest::producer_entry& p = entry_of(v.summary, e.producer);
  if (p.finished || p.retired || e.epoch != p.epoch || e.seq != p.next_seq) return false;
  ++p.next_seq;
  p.last_version = v.number;
  p.last_tgb = e;
  v.entries.push_back(e);
  ++v.summary.next_step;
  return true;
}

/// Ends the stream when all its producers are there and have finished or retired, and not all have retired.
inline void close_when_over(manifest::version& v, const manifest::stream_info& stream) {
  const auto& all = v.summary.producers;
  const auto over = [](const manifest::producer_entry& p) { return p.finished || p.retired; };
  const auto finished = [](const manifest::producer_entry& p) { return p.finished; };
  if (v.summary.closed || all.size() < stream.producers || !std::all_of(all.begin(), all.end(), over) ||
      std::none_of(all.begin(), all.end(), finished)) {
    return;
  }
  v.summary.closed = true;
  v.summary.final_step = v.summary.next_step;
  manifest::event closed;
  closed.kind = manifest::event_kind::stream_closed;
  closed.step = v.summary.final_step;
  v.events.push_back(std::move(closed));
}

inline void take_in_commit_order(manifest::version& v, const commit_request& r) {
  for (const manifest::tgb_entry& e : r.batches()) {
    if (v.entries.size() == batches_per_version) return;
    take(v, e);
  }
  std::vector<const manifest::tgb_entry*> others;
  for (const manifest::tgb_entry& e : r.carried()) others.push_back(&e);
  std::sort(others.begin(), others.end(), [](const manifest::tgb_entry* a, const manifest::tgb_entry* b) {
    return a->seq != b->seq ? a->seq < b->seq : a->producer < b->producer;
  });
  for (const manifest::tgb_entry* e : others) {
    if (v.entries.size() == batches_per_version) return;
    take(v, *e);
  }
}

inline void take_in_turn(manifest::version& v, const manifest::stream_info& stream, const commit_request& r) {
  std::map<std::pair<std::string_view, std::uint64_t>, const manifest::tgb_entry*> there;
  for (const manifest::tgb_entry& e : r.carried()) there[{e.producer, e.seq}] = &e;
  for (const manifest::tgb_entry& e : r.batches()) there[{e.producer, e.seq}] = &e;
  while (v.entries.size() < batches_per_version) {
    const manifest::producer_entry* next = turn(v.summary, stream);
    if (!next) return;
    const auto at = there.find({next->id, next->next_seq});
    if (at == there.end() || !take(v, *at->second)) return;
  }
}
}  // namespace detail

/// The version that would add what `request` names to the log. It has neither entries nor events when there is nothing to add now: in a
/// round_robin stream because it is somebody else's turn. When every producer has finished and at least stream.producers are known, the
/// stream closes at its final step.
/// Errors: fenced; stream_closed; bug when the committer's own seqs do not continue what is committed.
inline result<manifest::version> propose_commit(const manifest::version& tail, const manifest::stream_info& stream,
                                                const incarnation& me, const commit_request& request) {
  const manifest::producer_entry* known = find_producer(tail.summary, me.producer);
  if (!is_current(known, me)) return fenced(known, me);
  if (tail.summary.closed) return failure(errc::stream_closed, "producer " + me.producer + ": the stream has ended");
  std::uint64_t seq = known->next_seq;
  for (const auto& b : request.batches()) {
    if (b.producer != me.producer || b.epoch != me.epoch || b.seq != seq) {
      return failure(errc::bug, "producer " + me.producer + ": seq " + std::to_string(b.seq) + " does not continue the committed " +
                                    std::to_string(seq));
    }
    ++seq;
  }
  manifest::version v = detail::successor(tail, request.nonce(), request.unix_ns());
  if (stream.order == manifest::order_round_robin) detail::take_in_turn(v, stream, request);
  else detail::take_in_commit_order(v, request);
  manifest::producer_entry& p = detail::entry_of(v.summary, me.producer);
  if (request.finish() && p.next_seq == seq) {
    p.finished = true;
    p.last_version = v.number;
    manifest::event e;
    e.kind = manifest::event_kind::producer_finished;
    e.producer = me.producer;
    e.epoch = me.epoch;
    e.owner = me.owner;
    v.events.push_back(std::move(e));
    detail::close_when_over(v, stream);
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
