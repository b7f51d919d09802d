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
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/policy.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/global_batch.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/naming.hpp>
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

/// Settings of one producer.
class producer_options {
 public:
  /// `id`: the identity whose sequence numbers and state survive restarts; 1 to 128 characters of [A-Za-z0-9._-].
  explicit producer_options(std::string id) : id_(std::move(id)) {}

  /// Bounds the bytes of batches that are being uploaded; share one budget among roles. Default: 256 MiB of its own.
  producer_options& budget(memory_budget b) { budget_ = std::move(b); return *this; }
  /// publish() returns when fewer than this many uploads, the newest included, are unacknowledged. 1 (default): it returns when its
  /// own batch is durable.
  producer_options& uploads_in_flight(std::size_t n) { uploads_ = std::max<std::size_t>(1, n); return *this; }
  /// No uploaded batch waits longer than this for a commit attempt, whatever the policy says. Default 10 s.
  producer_options& max_visibility_delay(duration d) { visibility_ = d; return *this; }
  /// How long an operation keeps trying while the store is down or throttles. Default 10 min.
  producer_options& give_up_after(duration d) { patience_ = d; return *this; }
  /// Slices start at multiples of this power of two. Default 8.
  producer_options& alignment(std::uint32_t a) { alignment_ = a; return *this; }
  producer_options& clock(any_clock c) { clock_ = std::move(c); return *this; }
  /// Makes identifiers, jitter and the policy's draws reproducible. Incarnations that may run at one time need different seeds.
  producer_options& seed(std::uint64_t s) { random_ = random64(s); return *this; }

  const std::string& id() const noexcept { return id_; }
  const memory_budget& budget() const noexcept { return budget_; }
  std::size_t uploads_in_flight() const noexcept { return uploads_; }
  duration max_visibility_delay() const noexcept { return visibility_; }
  duration give_up_after() const noexcept { return patience_; }
  std::uint32_t alignment() const noexcept { return alignment_; }
  const any_clock& clock() const noexcept { return clock_; }
  random64 random() const noexcept { return random_; }

 private:
  std::string id_;
  memory_budget budget_;
  std::size_t uploads_ = 1;
  duration visibility_ = std::chrono::seconds(10);
  duration patience_ = std::chrono::minutes(10);
  std::uint32_t alignment_ = 8;
  any_clock clock_;
  random64 random_;
};
static_assert(!std::is_aggregate_v<producer_options>);

/// What a producer has done since it was opened.
class producer_stats {
 public:
  std::uint64_t commits() const noexcept { return commits_; }      ///< versions of ours that became part of the log
  std::uint64_t attempts() const noexcept { return attempts_; }    ///< conditional PUTs of a version
  std::uint64_t conflicts() const noexcept { return conflicts_; }  ///< attempts that somebody else won
  std::uint64_t batches() const noexcept { return batches_; }      ///< TGBs committed
  std::uint64_t bytes() const noexcept { return bytes_; }          ///< their object bytes
  /// From the call of publish() to the commit, one for each committed TGB; the latest 65,536.
  const std::deque<duration>& visible() const noexcept { return visible_; }

 private:
  template <object_store, commit::commit_policy, class>
  friend class basic_producer;
  std::uint64_t commits_ = 0, attempts_ = 0, conflicts_ = 0, batches_ = 0, bytes_ = 0;
  std::deque<duration> visible_;
};

/// A handle to one open producer; made by open_producer(). Move-only. Destroying it without close() or detach() abandons what is not
/// committed: the next incarnation continues after the last committed batch. Destroy it before its execution context.
///
/// Uploads and commits run in coroutines on a strand of the executor that opened the producer, so that executor may belong to a
/// thread pool. Thread safety: distinct objects are independent; the operations of one object may be awaited from any thread.
/// Every operation throws batchweave::error; as_result() turns that into a value. After fenced, or another failure that stops the
/// producer, every operation reports that failure. Cancelling an operation only ends the wait: a batch that was
/// accepted is uploaded and committed all the same, in order.
template <object_store Store, commit::commit_policy Policy = commit::dac, class Codecs = manifest::builtin_codecs>
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

  /// Accepts one batch with the producer state to be committed with it, and returns its sequence number when it is durable (see
  /// uploads_in_flight). One PUT, or a multipart upload; slices are sent from where they lie. The batch becomes visible with a
  /// later commit; flush() waits for that.
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
  template <class C, object_store S, commit::commit_policy P>
  friend asio::awaitable<basic_producer<S, P, C>> open_producer(S, producer_options, P);

  struct pending {
    std::uint64_t seq = 0;
    time_point accepted{};
    bool uploaded = false;
    manifest::tgb_entry entry;
  };

  struct core {
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
    static constexpr std::size_t batches_per_version = 4096;
    static constexpr std::size_t visible_kept = 65536;

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
    producer_stats stats;

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
      const std::string unit = "a batch of producer " + self->me.producer;
      result<memory_budget::lease> room = co_await self->budget.acquire(batch.bytes() + state.size(), unit);
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
      for (;;) {
        const async_event::ticket seen = self->changed.observe();
        {
          const std::lock_guard lock(self->mutex);
          std::size_t in_flight = 0;
          for (const pending& p : self->queue) in_flight += p.seq <= seq && !p.uploaded;
          if (in_flight < self->options.uploads_in_flight()) co_return seq;
          self->throw_if_stopped();
        }
        co_await self->changed.wait(seen);
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
          const put_condition always;
          random64 jitter(self->random_seed(seq));
          auto attempt = [&] { return self->store.put(key, made->pieces(), always); };
          result<put_outcome> put = co_await patiently(self->clock, jitter, self->options.give_up_after(), attempt);
          if (!put) {
            failed = in_context(put.error(), "uploading batch " + std::to_string(seq) + " of producer " + self->me.producer);
          } else {
            const std::lock_guard lock(self->mutex);
            pending& p = self->queue[seq - self->committed];
            p.entry.producer = self->me.producer;
            p.entry.epoch = self->me.epoch;
            p.entry.seq = seq;
            p.entry.bytes = made->bytes();
            p.entry.footer_offset = made->footer_offset();
            p.entry.layout = made->layout();
            p.entry.samples = batch.samples();
            p.entry.tag = batch.tag();
            p.uploaded = true;
          }
        }
      } catch (const std::exception& e) {  // a store may throw anything
        if (is_cancellation(e)) throw;
        failed = failure(errc::bug, std::string("uploading: ") + e.what());
      }
      room.release();
      if (failed) self->stop(std::move(*failed));
      else self->changed.notify();
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
      for (;;) {
        const async_event::ticket seen = self->changed.observe();
        {
          const std::lock_guard lock(self->mutex);
          if (self->committed >= target && (!finish || self->finished)) co_return;
          self->throw_if_stopped();
        }
        co_await self->changed.wait(seen);
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
        if (!p.uploaded || b.batches == batches_per_version) break;
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
        ready = committable();
        finish = finish_wanted && queue.empty() && !stopped_by;
        over = finished || (stopped_by && ready.batches == 0) || (stopped_by && stopped_by->kind() == error_kind::stop);
      }
      if (over) co_return false;
      if (ready.batches == 0 && !finish) {
        co_await changed.wait(seen);
        co_return true;
      }
      if (!finish && !urgent()) {
        const duration asked = policy.delay_before_commit(ready);
        const duration left = std::max(duration(0), options.max_visibility_delay() - ready.oldest_age);
        const time_point due = clock.now() + std::min(asked, left);
        while (clock.now() < due && !urgent()) {
          co_await changed.wait_until(seen, clock, due);
          if (asked == commit::not_yet && changed.observe() != seen) co_return true;  // the backlog changed: ask again
          seen = changed.observe();
        }
      }
      co_return co_await commit_until_won(finish);
    }

    asio::awaitable<bool> commit_until_won(bool finish) {
      std::optional<manifest::version> undecided;  // lost as far as the store said; the next tail read confirms it
      for (unsigned attempt_number = 1;; ++attempt_number) {
        const time_point begun = clock.now();
        const std::uint64_t known = tail.version->number;
        if (attempt_number > 1 || commit::active_producers(*tail.version) > 1) {
          auto read = [&] { return commit::find_tail<Codecs>(store, stream, known); };
          result<commit::tail_view> newest = co_await patiently(clock, random, options.give_up_after(), read);
          if (!newest) {
            stop(in_context(newest.error(), "committing for producer " + me.producer));
            co_return false;
          }
          tail = std::move(*newest);
        }
        if (undecided && commit::contains(*tail.version, *undecided, me)) {
          settle(*undecided);
          co_return true;
        }
        std::vector<manifest::tgb_entry> batches;
        {
          const std::lock_guard lock(mutex);
          const std::size_t n = committable().batches;
          for (std::size_t i = 0; i < n; ++i) batches.push_back(queue[i].entry);
          finish = finish_wanted && queue.size() == n && !stopped_by;
        }
        const std::int64_t now_ns = clock.wall_now().time_since_epoch().count();
        result<manifest::version> next = commit::propose_commit(*tail.version, me, batches, finish, stream.producers,
                                                                id128::draw(random), now_ns);
        if (!next) {
          stop(next.error());
          co_return false;
        }
        const auto encoded = Codecs::encode(*next, stream.codec);
        const std::string key = manifest::log_key(next->number);
        commit_put put = co_await put_until_decided(key, as_const_bytes(encoded));
        if (put.failed) {
          stop(std::move(*put.failed));
          co_return false;
        }
        bool won = put.applied;
        if (!won && put.ambiguous) {
          // An earlier try of this very PUT may be what is there.
          auto read = [&] { return commit::find_tail<Codecs>(store, stream, known); };
          result<commit::tail_view> newest = co_await patiently(clock, random, options.give_up_after(), read);
          if (!newest) {
            stop(in_context(newest.error(), "resolving version " + std::to_string(next->number) + " of producer " + me.producer));
            co_return false;
          }
          tail = std::move(*newest);
          won = commit::contains(*tail.version, *next, me);
        } else if (won) {
          auto mine = std::make_shared<const manifest::version>(*next);
          tail = commit::tail_view(std::move(mine), encoded.size());
        }
        commit::observation seen;
        seen.won = won;
        seen.round_trip = clock.now() - begun;
        seen.attempt = attempt_number;
        seen.versions_passed = tail.version->number - known;
        seen.active_producers = std::max(1u, commit::active_producers(*tail.version));
        seen.manifest_bytes = tail.bytes;
        policy.observe(seen);
        if (won) {
          settle(*next);
          co_return true;
        }
        {
          const std::lock_guard lock(mutex);
          ++stats.conflicts_;
        }
        undecided = std::move(*next);
        const duration pause = policy.delay_before_retry(seen);
        co_await clock.wait_for(pause);
      }
    }

    static const_bytes as_const_bytes(const auto& owned) { return {owned.data(), owned.size()}; }

    struct commit_put {
      commit_put() {}
      bool applied = false;
      bool ambiguous = false;  // an earlier try of the same bytes may have been applied
      std::optional<failure> failed;
    };

    // Repeats the same bytes to the same key until the store has said yes or no (protocol: never plan anew while undecided).
    asio::awaitable<commit_put> put_until_decided(std::string key, const_bytes encoded) {
      commit_put out;
      retry_policy pause;
      pause.base(std::chrono::milliseconds(50)).cap(std::chrono::seconds(5));
      const time_point give_up = clock.now() + options.give_up_after();
      const put_condition absent = put_condition::if_absent();
      for (unsigned n = 1;; ++n) {
        {
          const std::lock_guard lock(mutex);
          ++stats.attempts_;
        }
        const const_buffers body{encoded};
        result<put_outcome> put = co_await store.put(key, body, absent);
        if (put) {
          out.applied = put->applied();
          co_return out;
        }
        const failure why = put.error();
        if (why.fate() == fate::unknown) out.ambiguous = true;
        const bool hopeless = why.fate() == fate::did_not_happen && why.kind() != error_kind::retry_later;
        const duration wait = pause.delay(n, random);
        if (hopeless || clock.now() + wait > give_up) {
          failure f = in_context(why, "committing version at " + key + " for producer " + me.producer + " after " + std::to_string(n) +
                                          " attempts");
          if (out.ambiguous) {
            f = failure(errc::undecided, f.what() + "; the commit may yet take effect, re-open the producer to find out");
          }
          out.failed = std::move(f);
          co_return out;
        }
        co_await clock.wait_for(wait);
      }
    }

    // `won` is in the log: everything below its next_seq is committed for good (I9).
    void settle(const manifest::version& won) {
      const manifest::producer_entry* mine = commit::find_producer(won.summary, me.producer);
      const time_point now = clock.now();
      {
        const std::lock_guard lock(mutex);
        ++stats.commits_;
        while (!queue.empty() && queue.front().seq < mine->next_seq) {
          const pending& p = queue.front();
          ++stats.batches_;
          stats.bytes_ += p.entry.bytes;
          stats.visible_.push_back(now - p.accepted);
          if (stats.visible_.size() > visible_kept) stats.visible_.pop_front();
          queue.pop_front();
        }
        committed = mine->next_seq;
        if (mine->finished) finished = true;
      }
      changed.notify();
    }

    // ---- open ----------------------------------------------------------------------------------------------------

    // Raises the epoch (which fences zombies), then reads what was committed last.
    asio::awaitable<void> recover() {
      const id128 owner = id128::draw(random);
      std::optional<std::uint64_t> first_epoch;
      std::uint64_t known = 0;
      for (;;) {
        auto read = [&] { return commit::find_tail<Codecs>(store, stream, known); };
        result<commit::tail_view> newest = co_await patiently(clock, random, options.give_up_after(), read);
        if (!newest) throw error(in_context(newest.error(), "opening producer " + options.id()));
        tail = std::move(*newest);
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
        result<manifest::version> next = commit::propose_open(*tail.version, options.id(), owner, now_ns);
        if (!next) throw error(next.error());
        const auto encoded = Codecs::encode(*next, stream.codec);
        const std::string key = manifest::log_key(next->number);
        commit_put put = co_await put_until_decided(key, as_const_bytes(encoded));
        if (put.failed) throw error(in_context(*put.failed, "opening producer " + options.id()));
        if (put.applied) {
          me = commit::incarnation(options.id(), epoch + 1, owner);
          auto mine = std::make_shared<const manifest::version>(std::move(*next));
          tail = commit::tail_view(std::move(mine), encoded.size());
          break;
        }
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
template <class Codecs = manifest::builtin_codecs, object_store Store, commit::commit_policy Policy>
asio::awaitable<basic_producer<Store, Policy, Codecs>> open_producer(Store store, producer_options options, Policy policy) {
  using handle = basic_producer<Store, Policy, Codecs>;
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
