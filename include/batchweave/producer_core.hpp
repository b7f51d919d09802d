// The coroutines of a producer: upload, announce, commit, recover.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/aio/task_group.hpp>
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
#include <batchweave/producer_state.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/tgb/reader.hpp>
#include <batchweave/tgb/writer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::detail {

// Undoes what a wait has noted down, whichever way it ends.
template <class Self, class Undo>
class undone {
 public:
  undone(std::shared_ptr<Self> self, Undo undo) : self_(std::move(self)), undo_(undo) {}
  undone(const undone&) = delete;
  undone& operator=(const undone&) = delete;
  ~undone() {
    const std::lock_guard lock(self_->mutex);
    undo_(*self_);
  }

 private:
  std::shared_ptr<Self> self_;
  Undo undo_;
};

template <object_store Store, commit::commit_policy Policy, class Codecs, class Rules>
struct producer_core : producer_state, std::enable_shared_from_this<producer_core<Store, Policy, Codecs, Rules>> {
  producer_core(Store s, Policy p, producer_options o, manifest::stream_info i, asio::any_io_executor ex)
      : producer_state(std::move(o), std::move(i)), store(std::move(s)), policy(std::move(p)), random(options.random()), tasks(std::move(ex)) {
    policy.seed(random());
  }

  using self_ptr = std::shared_ptr<producer_core>;
  /// A commit whose tail was read longer ago than this is confirmed against the tail before it is reported: the second guard against a
  /// version number that became free while this process was asleep. The first is that reclaim never frees one.
  static constexpr duration confirm_after = std::chrono::minutes(1);

  Store store;
  Policy policy;
  random64 random;  // only the commit coroutine and open use it
  task_group tasks;
  commit::tail_view tail;  // only the commit coroutine uses it
  std::optional<time_point> policy_due;  // likewise: when the policy wants the next attempt
  unsigned due_among = 0;  // likewise: active producers when it said so
  bool leading = false;    // likewise: the newest version is ours and we go on to carry what others announce
  bool on_time = true;     // likewise: the policy or a flush asks for this attempt, not only a batch that has waited for its bound
  time_point tail_read{};  // likewise: when the tail was seen to be this
  std::string restored_state;

  bool shares() const { return round_robin() || commit::is_cooperative_v<Policy>; }
  bool announces() {
    const std::lock_guard lock(mutex);
    return shares() || starving;
  }
  // Whoever is so slow that others write that many versions during one attempt of its own loses every race. After a few such attempts
  // in a row it announces what it has, under any policy, and everybody looks into the inbox with that share of its commits.
  static constexpr double outrun_by = 3;
  static constexpr unsigned starving_after = 3;
  static constexpr double help_share = 0.125;

  // ---- publish -------------------------------------------------------------------------------------------------

  static asio::awaitable<std::uint64_t> publish(self_ptr self, global_batch batch, std::string state) {
    const time_point called = self->clock.now();
    self->check(batch).value();
    const std::string unit = "a batch of producer " + self->me.producer;
    std::optional<std::uint64_t> accepted;
    memory_budget::lease held;
    while (!accepted) {
      if (self->options.max_lead_steps() || self->options.max_lead_bytes()) co_await wait_for_groups(self, batch.bytes());
      result<memory_budget::lease> room = co_await acquire_room(self, batch.bytes() + state.size(), unit);
      if (!room) throw error(room.error());
      accepted = self->accept(batch.bytes(), called);  // none when another publish() was faster and used up the lead
      if (accepted) held = std::move(*room);
    }
    const std::uint64_t seq = *accepted;
    self->tasks.spawn(upload(self, seq, std::move(batch), std::move(state), std::move(held)));
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
  static asio::awaitable<result<memory_budget::lease>> acquire_room(self_ptr self, std::uint64_t bytes, std::string unit) {
    {
      const std::lock_guard lock(self->mutex);
      ++self->wait_for_room;
    }
    const undone ended(self, [](producer_core& c) { --c.wait_for_room; });
    co_return co_await self->budget.acquire(bytes, unit);
  }

  static asio::awaitable<void> wait_for_groups(self_ptr self, std::uint64_t bytes) {
    random64 jitter(self->random_seed(~std::uint64_t{0}));
    duration pause = std::chrono::milliseconds(20);
    time_point report = self->first_report();
    const undone ended(self, [](producer_core& c) { c.lead_reason.clear(); });
    for (;;) {
      self->report_wait_when(report);
      {
        const std::lock_guard lock(self->mutex);
        self->throw_if_stopped();
        self->lead_reason = self->too_far_ahead(bytes);
        if (self->lead_reason.empty()) co_return;
      }
      result<commit::tail_view> newest = co_await self->find_newest(jitter, 0);
      if (!newest) throw error(in_context(newest.error(), "producer " + self->me.producer + " waiting for the groups"));
      {
        const std::lock_guard lock(self->mutex);
        self->note(*newest->version);
        self->lead_reason = self->too_far_ahead(bytes);
        if (self->lead_reason.empty()) co_return;
      }
      co_await self->clock.wait_for(jittered(pause, jitter, 0.75, 1.25));
      pause = std::min<duration>(std::chrono::seconds(1), pause * 2);
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
    if (self->announces()) co_await announce(self, seq);
  }

  // Only a hint to others: what becomes of it is not looked at.
  static asio::awaitable<void> announce(self_ptr self, std::uint64_t seq) {
    manifest::tgb_entry entry;
    {
      const std::lock_guard lock(self->mutex);
      pending* p = self->find_pending(seq);
      if (!p || (self->alone && !self->round_robin() && !self->starving)) co_return;
      p->announced = true;
      entry = p->entry;
    }
    const result<put_outcome> put = co_await commit::announce(self->store, std::move(entry));
    if (put) co_return;
    const std::lock_guard lock(self->mutex);
    if (pending* p = self->find_pending(seq)) p->announced = false;
  }

  // Others carry what continues our committed seqs: one batch that was never announced, because we were alone when it was uploaded or
  // because its announcement failed, would hold up all that follow.
  void announce_missing() {
    std::vector<std::uint64_t> missing;
    {
      const std::lock_guard lock(mutex);
      if (!starving && (alone || !shares())) return;
      for (const pending& p : queue) {
        if (p.uploaded && !p.announced) missing.push_back(p.seq);
      }
    }
    for (const std::uint64_t seq : missing) tasks.spawn(announce(this->shared_from_this(), seq));
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

  static asio::awaitable<void> commit_loop(self_ptr self) {
    try {
      while (co_await self->commit_when_due()) {
      }
    } catch (const std::exception& e) {  // a store may throw anything
      if (is_cancellation(e)) throw;
      self->stop(failure(errc::bug, std::string("committing: ") + e.what()));
    }
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

  // `known`: a version that exists, or 0.
  asio::awaitable<result<commit::tail_view>> find_newest(random64& jitter, std::uint64_t known) {
    return commit::await_tail<Codecs>(store, stream, clock, jitter, options.give_up_after(), known, note_trouble());
  }

  // The tail as it is now, and what it says about this producer. False: the producer has stopped.
  asio::awaitable<bool> look(std::string why) {
    const time_point begun = clock.now();
    result<commit::tail_view> newest = co_await find_newest(random, tail.version->number);
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
    bool company = false;
    {
      const std::lock_guard lock(mutex);
      note(*tail.version);
      company = std::exchange(alone, commit::active_producers(*tail.version) <= 1) && !alone;
    }
    if (company) announce_missing();
  }

  asio::awaitable<bool> commit_until_won() {
    std::optional<id128> lost;  // nonce of the version that lost, as far as the store said
    bool fresh = false;         // the tail was read for this try
    duration turn_pause = std::chrono::milliseconds(5);
    duration last_attempt{0};
    unsigned outrun = 0;
    for (unsigned attempt = 1;;) {
      const time_point begun = clock.now();
      const std::uint64_t known = tail.version->number;
      const time_point known_at = tail_read;
      const bool others = commit::active_producers(*tail.version) > 1;
      if (!fresh && (attempt > 1 || (others && !leading) || round_robin())) {
        if (!co_await look("committing")) co_return false;
        const auto seconds = static_cast<double>((tail_read - known_at).count());
        const auto passed = static_cast<double>(tail.version->number - known);
        outrun = attempt > 1 && passed * static_cast<double>(last_attempt.count()) >= outrun_by * seconds ? outrun + 1 : 0;
        if (outrun == starving_after) note_starving(true);
      }
      fresh = false;
      // Another producer may have carried what was announced, and a store that repeats requests by itself may have hidden a win.
      if (Rules::current(commit::find_producer(tail.version->summary, me.producer), me)) {
        settle(*tail.version, lost && tail.version->nonce == *lost);
      }
      lost.reset();
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
      // Whoever starves commits nothing, so it does not count among the active ones.
      const bool helps = commit::open_producers(tail.version->summary) > 1 && random.uniform() < help_share;
      if (helps || round_robin() || (shares() && (others || attempt > 1))) {
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
        wait_for_turn_of(commit::turn(tail.version->summary, stream), tail.version->summary.producers.size());
        co_await clock.wait_for(jittered(turn_pause, random, 0.75, 1.25));
        turn_pause = std::min<duration>(std::chrono::milliseconds(500), turn_pause * 2);
        continue;
      }
      const auto encoded = Codecs::encode(*next, stream.codec);
      commit::version_put put = co_await commit::put_version<Rules>(store, clock, random, next->number, as_const_bytes(encoded),
                                                                   options.give_up_after(), "producer " + me.producer, note_trouble());
      count_attempts(put.attempts);
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
        if (attempt == 1) note_starving(false);
        std::vector<std::string> used = used_announcements(box, *tail.version);
        settle(*next, true);
        if (!used.empty()) tasks.spawn(remove_keys(this->shared_from_this(), std::move(used)));
        co_return true;
      }
      count_conflict();
      last_attempt = seen.round_trip;
      announce_missing();
      lost = next->nonce;
      ++attempt;
      const duration pause = std::min(policy.delay_before_retry(seen), options.max_visibility_delay());
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

  // Best effort: what stays is removed by the next committer, or by reclaim.
  static asio::awaitable<void> remove_keys(self_ptr self, std::vector<std::string> keys) {
    try {
      [[maybe_unused]] result<std::vector<remove_failure>> left = co_await self->store.remove(std::move(keys));
    } catch (const std::exception& e) {  // a store may throw anything
      if (is_cancellation(e)) throw;
    }
  }

  static const_bytes as_const_bytes(const auto& owned) { return {owned.data(), owned.size()}; }

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
      result<commit::tail_view> newest = co_await find_newest(random, known);
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
                                                                   options.give_up_after(), "producer " + options.id(), note_trouble());
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
    if (!mine->last_tgb.producer.empty()) co_await restore_state(mine->last_tgb);  // empty before the first, and when it was retired
  }

  asio::awaitable<void> throw_if_fenced() {
    result<commit::tail_view> newest = co_await find_newest(random, tail.version->number);
    if (!newest) throw error(in_context(newest.error(), "opening producer " + options.id()));
    const manifest::producer_entry* now = commit::find_producer(newest->version->summary, me.producer);
    if (!Rules::current(now, me)) throw error(commit::fenced(now, me));
  }

  asio::awaitable<void> restore_state(manifest::tgb_entry last) {
    const std::string key = manifest::tgb_key(last.producer, last.epoch, last.seq);
    const std::uint64_t at = last.footer_offset;
    byte_buffer buffer(last.bytes - at);
    auto read = [&] {
      const mutable_buffers into{buffer.bytes()};
      return store.get(key, byte_range(at, buffer.size()), into);
    };
    result<read_outcome> got = co_await patiently(clock, random, options.give_up_after(), read, note_trouble());
    if (!got) throw error(in_context(got.error(), "reading the state of producer " + options.id()));
    if (!got->found()) co_await throw_if_fenced();  // who took over has moved on, and reclaim with it
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

}  // namespace batchweave::detail
