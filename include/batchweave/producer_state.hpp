// What a producer has accepted and not committed, what it waits for, and what it has done: the state that its coroutines share.
#pragma once

#include <batchweave/aio/event.hpp>
#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/metrics.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/inbox.hpp>
#include <batchweave/commit/policy.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/global_batch.hpp>
#include <batchweave/manifest/announcement.hpp>
#include <batchweave/producer_options.hpp>
#include <batchweave/tgb/writer.hpp>
#include <batchweave/waiting.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::detail {

/// Everything of a producer that needs no store and no waiting. Members below `mutex` belong to it; functions lock it themselves unless
/// they say otherwise.
struct producer_state {
  producer_state(producer_options o, manifest::stream_info i)
      : options(std::move(o)), stream(std::move(i)), clock(options.clock()), budget(options.budget()) {}

  static constexpr std::size_t visible_kept = 65536;

  struct pending {
    std::uint64_t seq = 0;
    time_point accepted{};
    bool uploaded = false;
    bool announced = false;
    manifest::tgb_entry entry;
  };

  producer_options options;
  manifest::stream_info stream;
  any_clock clock;
  memory_budget budget;
  commit::incarnation me;
  std::optional<store_trouble> opening;  // until it is open

  std::mutex mutex;  // guards all below
  async_event changed;
  std::uint64_t next_seq = 0;
  std::uint64_t committed = 0;
  std::uint64_t flush_target = 0;
  std::deque<pending> queue;  // seqs [committed, next_seq)
  std::optional<failure> stopped_by;
  bool closing = false;
  bool finish_wanted = false;
  bool finished = false;
  bool alone = false;           // nobody else commits
  bool starving = false;        // loses every race
  std::uint64_t head = 0;       // next_step of the newest version seen
  std::uint64_t slowest = 0;    // the step that back-pressure counts from
  std::string slowest_group;    // whose it is
  int wait_for_room = 0;        // publish() calls that wait for the budget
  std::string lead_reason;      // why publish() waits
  std::string turn_reason;      // why a commit waits
  std::string trouble;          // the store's last failure while it is asked again
  producer_stats stats;

  bool round_robin() const { return stream.order == manifest::order_round_robin; }

  // ---- what is accepted ----------------------------------------------------------------------------------------

  result<void> check(const global_batch& batch) const {
    const std::string who = "producer " + me.producer + ": ";
    if (batch.slices().size() != stream.slices) {
      return failure(errc::invalid_argument, who + "the batch has " + std::to_string(batch.slices().size()) +
                                                 " slices, the stream has " + std::to_string(stream.slices) + " per step")
          .with_fate(fate::did_not_happen);
    }
    if (batch.tag().size() > 1024) {
      return failure(errc::invalid_argument, who + "the tag has " + std::to_string(batch.tag().size()) + " bytes, at most 1024")
          .with_fate(fate::did_not_happen);
    }
    return {};
  }

  /// The seq of a new batch; nullopt when it would lead too far. Throws when the producer takes none.
  std::optional<std::uint64_t> accept(std::uint64_t bytes, time_point called) {
    const std::lock_guard lock(mutex);
    throw_if_stopped();
    if (closing) {
      throw error(failure(errc::closed, "producer " + me.producer + ": closed, publishes nothing more").with_fate(fate::did_not_happen));
    }
    if (!too_far_ahead(bytes).empty()) return std::nullopt;
    pending p;
    p.seq = next_seq++;
    p.accepted = called;
    queue.push_back(std::move(p));
    return queue.back().seq;
  }

  std::uint64_t random_seed(std::uint64_t salt) const {
    random64 mix(me.owner.lo() ^ (salt * 0x9e3779b97f4a7c15u));
    return mix();
  }

  void throw_if_stopped() const {
    if (stopped_by) throw error(*stopped_by);
  }
  void stop(failure f) {
    {
      const std::lock_guard lock(mutex);
      if (!stopped_by) stopped_by = std::move(f);
    }
    changed.notify();
  }

  // Null when the batch is committed already.
  pending* find_pending(std::uint64_t seq) {
    if (queue.empty() || seq < queue.front().seq) return nullptr;
    return &queue[seq - queue.front().seq];
  }
  void describe(std::uint64_t seq, const tgb::object& made, const global_batch& batch) {
    const std::int64_t now_ns = clock.wall_now().time_since_epoch().count();
    const std::lock_guard lock(mutex);
    pending* p = find_pending(seq);
    if (!p) return;
    p->entry.producer = me.producer;
    p->entry.epoch = me.epoch;
    p->entry.seq = seq;
    p->entry.bytes = made.bytes();
    p->entry.footer_offset = made.footer_offset();
    p->entry.layout = made.layout();
    p->entry.samples = batch.samples();
    p->entry.tag = batch.tag();
    p->entry.unix_ns = now_ns;
  }
  void mark_uploaded(std::uint64_t seq) {
    const std::lock_guard lock(mutex);
    if (pending* p = find_pending(seq)) p->uploaded = true;
  }

  // ---- why it waits --------------------------------------------------------------------------------------------

  bool reports_waits() const { return options.on_wait() || options.metrics(); }
  void report_wait_when(time_point& report) {
    if (!reports_waits() || clock.now() < report) return;
    report = clock.now() + options.wait_bound();
    wait_state now;
    {
      const std::lock_guard lock(mutex);
      now = waits_for();
    }
    options.metrics().record(metrics::producer_waits, to_string(now.reason()));
    if (options.on_wait()) options.on_wait()(wait_state(now.reason(), "producer " + me.producer + ": " + now.text()));
  }
  time_point first_report() const { return clock.now() + options.wait_bound(); }

  // Under the mutex.
  wait_state waits_for() const {
    if (!lead_reason.empty()) return wait_state(wait_reason::back_pressure, lead_reason);
    if (!trouble.empty()) return wait_state(wait_reason::store_failing, trouble);
    if (!turn_reason.empty()) return wait_state(wait_reason::turn_of_another, turn_reason);
    if (wait_for_room > 0) return wait_state(wait_reason::memory_budget, "a batch waits for room in the memory budget");
    std::size_t uploads = 0;
    for (const pending& p : queue) uploads += !p.uploaded;
    if (uploads > 0) return wait_state(wait_reason::uploading, std::to_string(uploads) + " batches are being uploaded, the first is " +
                                                                   std::to_string(queue[0].seq));
    if (queue.empty()) return {};
    const double age = std::chrono::duration<double>(clock.now() - queue.front().accepted).count();
    return wait_state(wait_reason::committing, std::to_string(queue.size()) + " batches from " + std::to_string(queue.front().seq) +
                                                   " on wait for a commit, the oldest for " + std::to_string(age) + " s");
  }

  // For patiently and put_version: what the store answers while it is asked again.
  auto note_trouble() {
    return [this](const failure* f) {
      if (opening) (*opening)(f);
      const std::lock_guard lock(mutex);
      trouble = f ? f->what() : std::string();
    };
  }

  /// Empty when one more batch of `bytes` may go; else why not. Under the mutex.
  std::string too_far_ahead(std::uint64_t bytes) const {
    const std::uint64_t reached = head + queue.size();
    const std::uint64_t lead = reached > slowest ? reached - slowest : 0;
    const std::uint64_t mean = stats.batches_ ? stats.bytes_ / stats.batches_ : bytes;
    const bool steps = options.max_lead_steps() && lead >= options.max_lead_steps();
    const bool room = options.max_lead_bytes() && lead > 0 && lead * mean + bytes > options.max_lead_bytes();
    if (!steps && !room) return {};
    const std::string where = slowest_group.empty() ? "no group has a checkpoint; the oldest step is " + std::to_string(slowest)
                                                    : "group " + slowest_group + " is at step " + std::to_string(slowest);
    return "back-pressure: " + std::to_string(reached) + " steps are published and " + where +
           (steps ? "; max_lead_steps is " + std::to_string(options.max_lead_steps())
                  : "; max_lead_bytes is " + std::to_string(options.max_lead_bytes()));
  }

  // What back-pressure needs of a version. Under the mutex.
  void note(const manifest::version& v) {
    if (v.summary.next_step < head) return;
    head = v.summary.next_step;
    slowest = v.summary.trim_step;
    slowest_group.clear();
    bool first = true;
    for (const manifest::group_entry& g : v.summary.groups) {
      const std::uint64_t at = g.retained.empty() ? v.summary.trim_step : g.retained.back().step;
      if (first || at < slowest) {
        slowest = at;
        slowest_group = g.name;
      }
      first = false;
    }
  }

  // ---- what is committed ---------------------------------------------------------------------------------------

  // Uploaded batches that continue what is committed, in order.
  commit::backlog committable() const {
    commit::backlog b;
    for (const pending& p : queue) {
      if (!p.uploaded || b.batches == commit::batches_per_version) break;
      ++b.batches;
      b.bytes += p.entry.bytes;
    }
    if (b.batches) b.oldest_age = clock.now() - queue.front().accepted;
    return b;
  }

  // Whether a batch of ours has waited for max_visibility_delay.
  bool past_bound() {
    const std::lock_guard lock(mutex);
    return committable().oldest_age >= options.max_visibility_delay();
  }

  bool urgent() {
    const std::lock_guard lock(mutex);
    return flush_target > committed || finish_wanted;
  }

  // What a commit will carry.
  std::vector<manifest::tgb_entry> own_batches(bool& finish) {
    std::vector<manifest::tgb_entry> batches;
    const std::lock_guard lock(mutex);
    const std::size_t n = committable().batches;
    for (std::size_t i = 0; i < n; ++i) batches.push_back(queue[i].entry);
    finish = finish_wanted && queue.size() == n && !stopped_by && !finished;
    return batches;
  }

  void count_attempts(unsigned n) {
    options.metrics().record(metrics::commit_attempts, me.producer, n);
    const std::lock_guard lock(mutex);
    turn_reason.clear();
    stats.attempts_ += n;
  }
  void note_starving(bool is) {
    const std::lock_guard lock(mutex);
    starving = is;
  }
  void count_conflict() {
    options.metrics().record(metrics::commit_conflicts, me.producer);
    const std::lock_guard lock(mutex);
    ++stats.conflicts_;
  }
  void wait_for_turn_of(const manifest::producer_entry* next, std::size_t opened) {
    const std::lock_guard lock(mutex);
    turn_reason = next ? "round_robin: the next step is batch " + std::to_string(next->next_seq) + " of producer " + next->id
                       : "round_robin: " + std::to_string(opened) + " of " +
                             std::to_string(stream.producers) + " producers have opened";
  }

  // The keys in the inbox that `won` makes useless.
  std::vector<std::string> used_announcements(const commit::inbox& box, const manifest::version& won) {
    std::vector<std::string> used = box.stale;
    for (std::size_t i = 0; i < box.keys.size(); ++i) {
      const manifest::producer_entry* p = commit::find_producer(won.summary, box.entries[i].producer);
      if (p && box.entries[i].seq < p->next_seq) used.push_back(box.keys[i]);
    }
    const manifest::producer_entry* mine = commit::find_producer(won.summary, me.producer);
    const std::lock_guard lock(mutex);
    for (const pending& p : queue) {
      if (p.announced && p.seq < mine->next_seq) used.push_back(manifest::announcement(p.entry).key);
    }
    return used;
  }

  // Everything of ours below the next_seq of `v`, which is in the log, is committed for good (I9). `ours`: we wrote it.
  void settle(const manifest::version& v, bool ours) {
    const manifest::producer_entry* mine = commit::find_producer(v.summary, me.producer);
    const time_point now = clock.now();
    const any_metrics& sink = options.metrics();
    {
      const std::lock_guard lock(mutex);
      if (ours) {
        ++stats.commits_;
        std::uint64_t others = 0;
        for (const manifest::tgb_entry& e : v.entries) others += e.producer != me.producer;
        stats.carried_ += others;
        sink.record(metrics::commits, me.producer);
        if (others) sink.record(metrics::batches_carried, me.producer, static_cast<double>(others));
      }
      while (!queue.empty() && queue.front().seq < mine->next_seq) {
        const pending& p = queue.front();
        ++stats.batches_;
        stats.bytes_ += p.entry.bytes;
        stats.visible_.push_back(now - p.accepted);
        sink.record(metrics::batches_committed, me.producer);
        sink.record(metrics::bytes_committed, me.producer, static_cast<double>(p.entry.bytes));
        sink.record(metrics::visible_seconds, me.producer, std::chrono::duration<double>(now - p.accepted).count());
        if (stats.visible_.size() > visible_kept) stats.visible_.pop_front();
        queue.pop_front();
      }
      committed = mine->next_seq;
      if (mine->finished) finished = true;
      sink.record(metrics::producer_pending, me.producer, static_cast<double>(queue.size()));
    }
    changed.notify();
  }
};

}  // namespace batchweave::detail
