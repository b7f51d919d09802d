// The role that uploads global batches and publishes them in one global order, exactly once.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/aio/task_group.hpp>
#include <batchweave/as_result.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/base/retry.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/inbox.hpp>
#include <batchweave/commit/policy.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/commit/put_version.hpp>
#include <batchweave/commit/rules.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/global_batch.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/producer_options.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/tgb/reader.hpp>
#include <batchweave/tgb/writer.hpp>

#include <boost/asio/strand.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace batchweave {

/// A handle to one open producer; made by open_producer(). Move-only. Destroying it without close() or detach() abandons what is not
/// committed: the next incarnation continues after the last committed batch. Destroy it before its execution context.
///
/// Uploads and commits run in coroutines on a strand of the executor that opened the producer, so that executor may belong to a
/// thread pool. Thread safety: distinct objects are independent; the operations of one object may be awaited from any thread.
/// Every operation throws batchweave::error; as_result() turns that into a value. After fenced, or another failure that stops the
/// producer, every operation reports that failure. Cancelling an operation only ends the wait: a batch that was
/// accepted is uploaded and committed all the same, in order.
template <object_store Store, commit::commit_policy Policy = commit::dac, class Codecs = manifest::builtin_codecs,
          class Rules = commit::rules>
class basic_producer {
 public:
  basic_producer() = default;
  basic_producer(basic_producer&&) noexcept = default;
  basic_producer& operator=(basic_producer&& o) noexcept {
    if (this != &o) {
      abandon();
      core_ = std::move(o.core_);
    }
    return *this;
  }
  ~basic_producer() { abandon(); }

  /// The state that was committed with the last batch of this producer, by whichever incarnation; empty before the first.
  std::string_view state() const noexcept { return core_->restored_state; }
  std::uint64_t epoch() const noexcept { return core_->me.epoch; }
  /// Sequence number of the next batch.
  std::uint64_t next_seq() const {
    const std::lock_guard lock(core_->mutex);
    return core_->next_seq;
  }
  /// Batches [0, committed_seq()) are in the log for good.
  std::uint64_t committed_seq() const {
    const std::lock_guard lock(core_->mutex);
    return core_->committed;
  }
  producer_stats stats() const {
    const std::lock_guard lock(core_->mutex);
    return core_->stats;
  }
  /// Why publish(), flush() or close() would wait now, in words, or empty: for logs and dashboards.
  std::string waiting_for() const { return wait().text(); }
  /// The same with a reason that a program can read.
  wait_state wait() const {
    const std::lock_guard lock(core_->mutex);
    return core_->waits_for();
  }

  /// Accepts one batch with the producer state to be committed with it, and returns its sequence number when it is durable (see
  /// uploads_in_flight). One PUT, or a multipart upload; slices are sent from where they lie. The batch becomes visible with a
  /// later commit; flush() waits for that. With a cooperative policy or a round_robin stream, and others active, one more small PUT
  /// announces it. Waits while the lead over the slowest group is too large (max_lead_steps), looking at the tail about once a second.
  /// Errors: invalid_argument (number of slices, alignment, tag), budget_too_small, fenced, stream_closed, closed, those of the store.
  /// Cancellation: before the batch was accepted nothing happened; after that it only ends the wait.
  asio::awaitable<std::uint64_t> publish(global_batch batch, std::string state = std::string()) {
    return core::publish(core_, std::move(batch), std::move(state));
  }

  /// Returns when every batch accepted so far is committed; bypasses the commit policy's interval.
  asio::awaitable<void> flush() { return core::flush(core_, false); }

  /// Flushes, then ends this producer: when all (and at least stream_options::producers) have closed, the stream ends at one step for
  /// every rank. The handle takes no more batches. Cancelled: call it again.
  asio::awaitable<void> close() { return core::flush(core_, true); }

  /// Flushes and leaves without ending: a later incarnation goes on.
  asio::awaitable<void> detach() { return core::leave(core_); }

 private:
  template <class C, class R, object_store S, commit::commit_policy P>
  friend asio::awaitable<basic_producer<S, P, C, R>> open_producer(S, producer_options, P);

  struct pending {
    std::uint64_t seq = 0;
    time_point accepted{};
    bool uploaded = false;
    bool announced = false;
    manifest::tgb_entry entry;
  };

  struct core : std::enable_shared_from_this<core> {
    core(Store s, Policy p, producer_options o, manifest::stream_info i, asio::any_io_executor ex)
        : store(std::move(s)),
          policy(std::move(p)),
          options(std::move(o)),
          stream(std::move(i)),
          clock(options.clock()),
          budget(options.budget()),
          random(options.random()),
          tasks(std::move(ex)) {
      policy.seed(random());
    }

    using self_ptr = std::shared_ptr<core>;
    static constexpr std::size_t visible_kept = 65536;
    /// A commit whose tail was read longer ago than this is confirmed against the tail before it is reported: the second guard against a
    /// version number that became free while this process was asleep. The first is that reclaim never frees one.
    static constexpr duration confirm_after = std::chrono::minutes(1);

    Store store;
    Policy policy;
    producer_options options;
    manifest::stream_info stream;
    any_clock clock;
    memory_budget budget;
    random64 random;  // only the commit coroutine and open use it
    task_group tasks;
    commit::incarnation me;
    commit::tail_view tail;  // only the commit coroutine uses it
    std::optional<time_point> policy_due;  // likewise: when the policy wants the next attempt
    unsigned due_among = 0;  // likewise: active producers when it said so
    bool leading = false;    // likewise: the newest version is ours and we go on to carry what others announce
    bool on_time = true;     // likewise: the policy or a flush asks for this attempt, not only a batch that has waited for its bound
    time_point tail_read{};  // likewise: when the tail was seen to be this
    std::string restored_state;

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
    std::uint64_t head = 0;       // next_step of the newest version seen
    std::uint64_t slowest = 0;    // the step that back-pressure counts from
    std::string slowest_group;    // whose it is
    int wait_for_room = 0;        // publish() calls that wait for the budget
    std::string lead_reason;      // why publish() waits
    std::string turn_reason;      // why a commit waits
    std::string trouble;          // the store's last failure while it is asked again
    producer_stats stats;

    bool round_robin() const { return stream.order == manifest::order_round_robin; }
    bool shares() const { return round_robin() || commit::is_cooperative_v<Policy>; }

    // ---- publish -------------------------------------------------------------------------------------------------

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

    static asio::awaitable<std::uint64_t> publish(self_ptr self, global_batch batch, std::string state) {
      const time_point called = self->clock.now();
      self->check(batch).value();
      if (self->options.max_lead_steps() || self->options.max_lead_bytes()) co_await wait_for_groups(self, batch.bytes());
      const std::string unit = "a batch of producer " + self->me.producer;
      result<memory_budget::lease> room = co_await acquire_room(self, batch.bytes() + state.size(), unit);
      if (!room) throw error(room.error());
      std::uint64_t seq = 0;
      {
        const std::lock_guard lock(self->mutex);
        self->throw_if_stopped();
        if (self->closing) {
          throw error(failure(errc::closed, "producer " + self->me.producer + ": closed, publishes nothing more")
                          .with_fate(fate::did_not_happen));
        }
        seq = self->next_seq++;
        pending p;
        p.seq = seq;
        p.accepted = called;
        self->queue.push_back(std::move(p));
      }
      self->tasks.spawn(upload(self, seq, std::move(batch), std::move(state), std::move(*room)));
      time_point report = self->first_report();
      for (;;) {
        const async_event::ticket seen = self->changed.observe();
        {
          const std::lock_guard lock(self->mutex);
          std::size_t in_flight = 0;
          for (const pending& p : self->queue) in_flight += p.seq <= seq && !p.uploaded;
          if (in_flight < self->options.uploads_in_flight()) co_return seq;
          self->throw_if_stopped();
        }
        co_await wait_and_report(self, seen, report);
      }
    }

    // One wait for a change, with a report when the whole has lasted too long. Moves `report` on.
    static asio::awaitable<void> wait_and_report(self_ptr self, async_event::ticket seen, time_point& report) {
      if (!self->reports_waits()) {
        co_await self->changed.wait(seen);
        co_return;
      }
      self->report_wait_when(report);
      co_await self->changed.wait_until(seen, self->clock, report);
    }
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

    // Undoes what a wait has noted down, whichever way it ends.
    template <class Undo>
    class undone {
     public:
      undone(self_ptr self, Undo undo) : self_(std::move(self)), undo_(undo) {}
      undone(const undone&) = delete;
      undone& operator=(const undone&) = delete;
      ~undone() {
        const std::lock_guard lock(self_->mutex);
        undo_(*self_);
      }

     private:
      self_ptr self_;
      Undo undo_;
    };

    static asio::awaitable<result<memory_budget::lease>> acquire_room(self_ptr self, std::uint64_t bytes, std::string unit) {
      {
        const std::lock_guard lock(self->mutex);
        ++self->wait_for_room;
      }
      const undone ended(self, [](core& c) { --c.wait_for_room; });
      co_return co_await self->budget.acquire(bytes, unit);
    }

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

    static asio::awaitable<void> wait_for_groups(self_ptr self, std::uint64_t bytes) {
      random64 jitter(self->random_seed(~std::uint64_t{0}));
      duration pause = std::chrono::milliseconds(20);
      time_point report = self->first_report();
      const undone ended(self, [](core& c) { c.lead_reason.clear(); });
      for (;;) {
        self->report_wait_when(report);
        {
          const std::lock_guard lock(self->mutex);
          self->throw_if_stopped();
          self->lead_reason = self->too_far_ahead(bytes);
          if (self->lead_reason.empty()) co_return;
        }
        auto read = [&] { return commit::find_tail<Codecs>(self->store, self->stream, 0); };
        result<commit::tail_view> newest = co_await patiently(self->clock, jitter, self->options.give_up_after(), read, self->note_trouble());
        if (!newest) throw error(in_context(newest.error(), "producer " + self->me.producer + " waiting for the groups"));
        {
          const std::lock_guard lock(self->mutex);
          self->note(*newest->version);
          self->lead_reason = self->too_far_ahead(bytes);
          if (self->lead_reason.empty()) co_return;
        }
        const double factor = jitter.uniform(0.75, 1.25);
        co_await self->clock.wait_for(duration(static_cast<duration::rep>(static_cast<double>(pause.count()) * factor)));
        pause = std::min<duration>(std::chrono::seconds(1), pause * 2);
      }
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

    static asio::awaitable<void> upload(self_ptr self, std::uint64_t seq, global_batch batch, std::string state,
                                        memory_budget::lease room) {
      std::optional<failure> failed;
      try {
        std::vector<const_bytes> slices;
        slices.reserve(batch.slices().size());
        for (const byte_buffer& s : batch.slices()) slices.push_back(s.bytes());
        tgb::footer footer;
        footer.stream_id = self->stream.id;
        footer.producer = self->me.producer;
        footer.epoch = self->me.epoch;
        footer.seq = seq;
        footer.state = std::move(state);
        result<tgb::object> made = tgb::write(slices, std::move(footer), self->options.alignment());
        if (!made) {
          failed = made.error();
        } else {
          const std::string key = manifest::tgb_key(self->me.producer, self->me.epoch, seq);
          self->describe(seq, *made, batch);
          if constexpr (!Rules::durable_first) self->mark_uploaded(seq);
          const put_condition always;
          random64 jitter(self->random_seed(seq));
          auto attempt = [&] { return self->store.put(key, made->pieces(), always); };
          result<put_outcome> put = co_await patiently(self->clock, jitter, self->options.give_up_after(), attempt, self->note_trouble());
          if (!put) {
            failed = in_context(put.error(), "uploading batch " + std::to_string(seq) + " of producer " + self->me.producer);
          } else {
            self->mark_uploaded(seq);
          }
        }
      } catch (const std::exception& e) {  // a store may throw anything
        if (is_cancellation(e)) throw;
        failed = failure(errc::bug, std::string("uploading: ") + e.what());
      }
      room.release();
      if (failed) {
        self->stop(std::move(*failed));
        co_return;
      }
      self->changed.notify();
      if (self->shares()) co_await announce(self, seq);
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

    // Only a hint to others: what becomes of it is not looked at.
    static asio::awaitable<void> announce(self_ptr self, std::uint64_t seq) {
      manifest::tgb_entry entry;
      {
        const std::lock_guard lock(self->mutex);
        pending* p = self->find_pending(seq);
        if (!p || (self->alone && !self->round_robin())) co_return;
        p->announced = true;
        entry = p->entry;
      }
      [[maybe_unused]] result<put_outcome> put = co_await commit::announce(self->store, std::move(entry));
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

    // ---- flush, close, detach ------------------------------------------------------------------------------------

    static asio::awaitable<void> flush(self_ptr self, bool finish) {
      std::uint64_t target = 0;
      {
        const std::lock_guard lock(self->mutex);
        target = self->next_seq;
        self->flush_target = std::max(self->flush_target, target);
        if (finish) self->closing = self->finish_wanted = true;
      }
      self->changed.notify();
      time_point report = self->first_report();
      for (;;) {
        const async_event::ticket seen = self->changed.observe();
        {
          const std::lock_guard lock(self->mutex);
          if (self->committed >= target && (!finish || self->finished)) co_return;
          self->throw_if_stopped();
        }
        co_await wait_and_report(self, seen, report);
      }
    }

    static asio::awaitable<void> leave(self_ptr self) {
      {
        const std::lock_guard lock(self->mutex);
        self->closing = true;
      }
      co_await flush(self, false);
    }

    // ---- commit --------------------------------------------------------------------------------------------------

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

    static asio::awaitable<void> commit_loop(self_ptr self) {
      try {
        while (co_await self->commit_when_due()) {
        }
      } catch (const std::exception& e) {  // a store may throw anything
        if (is_cancellation(e)) throw;
        self->stop(failure(errc::bug, std::string("committing: ") + e.what()));
      }
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

    // One wait and at most one commit; false when there is nothing more to do for good.
    asio::awaitable<bool> commit_when_due() {
      async_event::ticket seen = changed.observe();
      commit::backlog ready;
      bool finish = false;
      bool over = false;
      {
        const std::lock_guard lock(mutex);
        leading = leading && !closing;
        ready = committable();
        finish = finish_wanted && queue.empty() && !stopped_by;
        over = finished || (stopped_by && ready.batches == 0) || (stopped_by && stopped_by->kind() == error_kind::stop);
      }
      if (over) co_return false;
      if (ready.batches == 0 && !finish && !leading) {
        co_await changed.wait(seen);
        co_return true;
      }
      on_time = true;
      if (!finish && !urgent()) {
        if (!policy_due) {
          const duration asked = policy.delay_before_commit(ready);
          if (asked != commit::not_yet) policy_due = clock.now() + asked;
          due_among = commit::active_producers(*tail.version);
        }
        const duration left = std::max(options.max_visibility_delay() - ready.oldest_age, commit::soonest_attempt(policy));
        const time_point bound = clock.now() + left;
        const time_point due = policy_due ? std::min(*policy_due, bound) : bound;
        while (clock.now() < due && !urgent()) {
          co_await changed.wait_until(seen, clock, due);
          if (!policy_due && changed.observe() != seen) co_return true;  // the backlog changed: ask again
          seen = changed.observe();
        }
        on_time = urgent() || (policy_due && clock.now() >= *policy_due);
      }
      co_return co_await commit_until_won();
    }

    // The tail as it is now, and what it says about this producer. False: the producer has stopped.
    asio::awaitable<bool> look(std::string why) {
      const time_point begun = clock.now();
      const std::uint64_t known = tail.version->number;
      auto read = [&] { return commit::find_tail<Codecs>(store, stream, known); };
      result<commit::tail_view> newest = co_await patiently(clock, random, options.give_up_after(), read, note_trouble());
      if (!newest) {
        stop(in_context(newest.error(), why + " for producer " + me.producer));
        co_return false;
      }
      saw(std::move(*newest), begun);
      co_return true;
    }

    void saw(commit::tail_view view, time_point when) {
      tail = std::move(view);
      tail_read = when;
      const std::lock_guard lock(mutex);
      note(*tail.version);
      alone = commit::active_producers(*tail.version) <= 1;
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

    asio::awaitable<bool> commit_until_won() {
      std::optional<manifest::version> undecided;  // lost as far as the store said; the next tail read confirms it
      bool fresh = false;                          // the tail was read for this try
      duration turn_pause = std::chrono::milliseconds(5);
      for (unsigned attempt = 1;;) {
        const time_point begun = clock.now();
        const std::uint64_t known = tail.version->number;
        const bool others = commit::active_producers(*tail.version) > 1;
        if (!fresh && (attempt > 1 || (others && !leading) || round_robin())) {
          if (!co_await look("committing")) co_return false;
        }
        fresh = false;
        // Another producer may have carried what was announced, and a lost reply may have been a win.
        if (Rules::current(commit::find_producer(tail.version->summary, me.producer), me)) {
          settle(*tail.version, undecided && Rules::landed(*tail.version, *undecided, me));
        }
        undecided.reset();
        bool finish = false;
        const std::vector<manifest::tgb_entry> batches = own_batches(finish);
        const bool for_others = commit::is_cooperative_v<Policy> && attempt == 1 && on_time && others;
        const bool early = !on_time && attempt == 1 && !past_bound();  // what had waited too long was committed meanwhile
        if ((batches.empty() && !finish && !for_others) || early) {
          const std::lock_guard lock(mutex);
          turn_reason.clear();
          if (on_time) policy_due.reset();
          else looked(begun, known);
          co_return true;
        }
        policy_due.reset();

        commit::inbox box;
        if (shares() && (others || attempt > 1 || round_robin())) {
          result<commit::inbox> there = co_await commit::read_inbox(store, tail.version->summary, me.producer);
          if (there) box = std::move(*there);
        }
        const std::int64_t now_ns = clock.wall_now().time_since_epoch().count();
        commit::commit_request request;
        request.batches(batches).carried(box.entries).finish(finish).nonce(id128::draw(random)).unix_ns(now_ns);
        result<manifest::version> next = Rules::commit(*tail.version, stream, me, request);
        if (!next) {
          stop(next.error());
          co_return false;
        }
        if (next->entries.empty() && next->events.empty()) {
          if (batches.empty()) {
            looked(begun, known);
            co_return true;
          }
          wait_for_turn_of(commit::turn(tail.version->summary, stream));
          const double factor = random.uniform(0.75, 1.25);
          co_await clock.wait_for(duration(static_cast<duration::rep>(static_cast<double>(turn_pause.count()) * factor)));
          turn_pause = std::min<duration>(std::chrono::milliseconds(500), turn_pause * 2);
          continue;
        }
        const auto encoded = Codecs::encode(*next, stream.codec);
        commit::version_put put = co_await commit::put_version<Rules>(store, clock, random, next->number, as_const_bytes(encoded),
                                                                     options.give_up_after(), "producer " + me.producer, note_trouble());
        {
          const std::lock_guard lock(mutex);
          turn_reason.clear();
          stats.attempts_ += put.attempts;
        }
        options.metrics().record(metrics::commit_attempts, me.producer, put.attempts);
        if (put.failed) {
          stop(std::move(*put.failed));
          co_return false;
        }
        bool won = put.applied;
        if ((!won && put.ambiguous) || (won && clock.now() - tail_read > confirm_after)) {
          // An earlier try of this very PUT may be what is there; or this version may be one that nobody reads.
          if (!co_await look("resolving version " + std::to_string(next->number))) co_return false;
          fresh = true;
          won = Rules::landed(*tail.version, *next, me);
        } else if (won) {
          auto mine = std::make_shared<const manifest::version>(*next);
          saw(commit::tail_view(std::move(mine), encoded.size()), begun);
        }
        const commit::observation seen = tell_policy(won, attempt, begun, known);
        leading = won && commit::is_cooperative_v<Policy> && seen.active_producers > 1;
        if (won) {
          std::vector<std::string> used = used_announcements(box, *tail.version);
          settle(*next, true);
          if (!used.empty()) tasks.spawn(remove_keys(this->shared_from_this(), std::move(used)));
          co_return true;
        }
        {
          const std::lock_guard lock(mutex);
          ++stats.conflicts_;
        }
        options.metrics().record(metrics::commit_conflicts, me.producer);
        undecided = std::move(*next);
        ++attempt;
        const duration pause = policy.delay_before_retry(seen);
        if (pause > duration(0)) {
          fresh = false;
          co_await clock.wait_for(pause);
        }
      }
    }

    commit::observation what_was_seen(time_point begun, std::uint64_t known) const {
      commit::observation seen;
      seen.round_trip = clock.now() - begun;
      seen.versions_passed = tail.version->number - known;
      seen.active_producers = std::max(1u, commit::active_producers(*tail.version));
      seen.manifest_bytes = tail.bytes;
      return seen;
    }
    commit::observation tell_policy(bool won, unsigned attempt, time_point begun, std::uint64_t known) {
      commit::observation seen = what_was_seen(begun, known);
      seen.won = won;
      seen.attempt = attempt;
      policy.observe(seen);
      options.metrics().record(metrics::attempt_seconds, me.producer, std::chrono::duration<double>(seen.round_trip).count());
      options.metrics().record(metrics::manifest_bytes, me.producer, static_cast<double>(seen.manifest_bytes));
      return seen;
    }
    // The tail was read and nothing attempted. When many have left, the policy's time was chosen for a crowd that is gone.
    void looked(time_point begun, std::uint64_t known) {
      commit::observation seen = what_was_seen(begun, known);
      seen.attempted = false;
      policy.observe(seen);
      if (2 * seen.active_producers <= due_among) policy_due.reset();
    }

    void wait_for_turn_of(const manifest::producer_entry* next) {
      const std::lock_guard lock(mutex);
      turn_reason = next ? "round_robin: the next step is batch " + std::to_string(next->next_seq) + " of producer " + next->id
                         : "round_robin: " + std::to_string(tail.version->summary.producers.size()) + " of " +
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

    // Best effort: what stays is removed by the next committer, or by reclaim.
    static asio::awaitable<void> remove_keys(self_ptr self, std::vector<std::string> keys) {
      try {
        [[maybe_unused]] result<std::vector<remove_failure>> left = co_await self->store.remove(std::move(keys));
      } catch (const std::exception& e) {  // a store may throw anything
        if (is_cancellation(e)) throw;
      }
    }

    static const_bytes as_const_bytes(const auto& owned) { return {owned.data(), owned.size()}; }

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

    // ---- open ----------------------------------------------------------------------------------------------------

    // Raises the epoch (which fences zombies), then reads what was committed last.
    asio::awaitable<void> recover() {
      const id128 owner = id128::draw(random);
      std::optional<std::uint64_t> first_epoch;
      std::uint64_t known = 0;
      retry_policy pause;  // many may open at one moment
      pause.base(std::chrono::milliseconds(100)).cap(std::chrono::seconds(5));
      for (unsigned attempt = 1;; ++attempt) {
        const time_point begun = clock.now();
        auto read = [&] { return commit::find_tail<Codecs>(store, stream, known); };
        result<commit::tail_view> newest = co_await patiently(clock, random, options.give_up_after(), read);
        if (!newest) throw error(in_context(newest.error(), "opening producer " + options.id()));
        saw(std::move(*newest), clock.now());
        known = tail.version->number;
        const manifest::producer_entry* there = commit::find_producer(tail.version->summary, options.id());
        // Only after a try of ours: an earlier incarnation with the same seed has the same owner.
        if (first_epoch && there && there->owner == owner && there->epoch == *first_epoch + 1) {
          me = commit::incarnation(options.id(), there->epoch, owner);
          break;
        }
        const std::uint64_t epoch = there ? there->epoch : 0;
        if (!first_epoch) first_epoch = epoch;
        if (epoch != *first_epoch) {
          // Another incarnation opened at the same moment and was first: give way, or the two would fence each other for ever.
          const commit::incarnation us(options.id(), *first_epoch + 1, owner);
          throw error(commit::fenced(there, us));
        }
        const std::int64_t now_ns = clock.wall_now().time_since_epoch().count();
        result<manifest::version> next = Rules::open(*tail.version, stream, options.id(), owner, now_ns);
        if (!next) throw error(next.error());
        const auto encoded = Codecs::encode(*next, stream.codec);
        commit::version_put put = co_await commit::put_version<Rules>(store, clock, random, next->number, as_const_bytes(encoded),
                                                                     options.give_up_after(), "producer " + options.id());
        if (put.failed) throw error(in_context(*put.failed, "opening producer " + options.id()));
        if (put.applied) {
          me = commit::incarnation(options.id(), epoch + 1, owner);
          auto mine = std::make_shared<const manifest::version>(std::move(*next));
          saw(commit::tail_view(std::move(mine), encoded.size()), clock.now());
          tell_policy(true, attempt, begun, tail.version->number - 1);
          break;
        }
        co_await clock.wait_for(pause.delay(attempt, random));
      }
      const manifest::producer_entry* mine = commit::find_producer(tail.version->summary, options.id());
      next_seq = committed = mine->next_seq;
      if (committed > 0) co_await restore_state(mine->last_tgb);
    }

    asio::awaitable<void> restore_state(manifest::tgb_entry last) {
      const std::string key = manifest::tgb_key(last.producer, last.epoch, last.seq);
      const std::uint64_t at = last.footer_offset;
      byte_buffer buffer(last.bytes - at);
      auto read = [&] {
        const mutable_buffers into{buffer.bytes()};
        return store.get(key, byte_range(at, buffer.size()), into);
      };
      result<read_outcome> got = co_await patiently(clock, random, options.give_up_after(), read);
      if (!got) throw error(in_context(got.error(), "reading the state of producer " + options.id()));
      if (!got->found() || got->bytes() != buffer.size()) {
        throw error(failure(errc::object_missing, store.name() + " " + key + ": the last batch of producer " + options.id() +
                                                      " is gone or short, so its state cannot be restored"));
      }
      result<tgb::footer> footer = tgb::read_footer(buffer.bytes());
      if (!footer) throw error(in_context(footer.error(), store.name() + " " + key));
      if (footer->stream_id != stream.id || footer->producer != last.producer || footer->epoch != last.epoch || footer->seq != last.seq) {
        throw error(failure(errc::damaged, store.name() + " " + key + ": the object holds batch " + std::to_string(footer->seq) +
                                               " of producer " + footer->producer + ", not what the log says"));
      }
      restored_state = std::move(footer->state);
    }
  };

  explicit basic_producer(std::shared_ptr<core> c) : core_(std::move(c)) {}
  void abandon() noexcept {
    if (core_) core_->tasks.cancel();
    core_.reset();
  }

  std::shared_ptr<core> core_;
};

/// Opens `options.id()` on the stream in `store`: raises its epoch, which fences every older incarnation, and restores the state that
/// was committed last. Requests: GET of the stream description, LIST + GET of the tail, one conditional PUT, one GET of the footer.
/// Errors: stream_missing, stream_closed, fenced (another incarnation opened at the same time), invalid_argument, those of the store;
/// waits with back-off while the store throttles or is down, up to give_up_after.
/// Cancellation: the epoch may or may not be raised; open again.
/// `Codecs`: the manifest codecs it knows, `open_producer<manifest::codec_set<mine, manifest::binary>>(...)` for one of your own.
template <class Codecs = manifest::builtin_codecs, class Rules = commit::rules, object_store Store, commit::commit_policy Policy>
asio::awaitable<basic_producer<Store, Policy, Codecs, Rules>> open_producer(Store store, producer_options options, Policy policy) {
  using handle = basic_producer<Store, Policy, Codecs, Rules>;
  manifest::check_name("producer id", options.id()).value();
  any_clock clock = options.clock();
  random64 random = options.random();
  auto read = [&] { return commit::read_stream_info<Codecs>(store); };
  result<manifest::stream_info> info = co_await patiently(clock, random, options.give_up_after(), read);
  if (!info) throw error(in_context(info.error(), "opening producer " + options.id()));
  const asio::any_io_executor base = co_await asio::this_coro::executor;
  const asio::any_io_executor strand = asio::make_strand(base);
  auto core = std::make_shared<typename handle::core>(std::move(store), std::move(policy), std::move(options), std::move(*info), strand);
  co_await core->recover();
  core->tasks.spawn(handle::core::commit_loop(core));
  co_return handle(std::move(core));
}

template <class Codecs = manifest::builtin_codecs, object_store Store>
asio::awaitable<basic_producer<Store, commit::dac, Codecs>> open_producer(Store store, producer_options options) {
  return open_producer<Codecs>(std::move(store), std::move(options), commit::dac());
}

}  // namespace batchweave
