// The coroutines of a consumer: follow the log, fetch ahead, hand out.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/aio/patiently.hpp>
#include <batchweave/aio/task_group.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/metrics.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/commit/index.hpp>
#include <batchweave/commit/tail.hpp>
#include <batchweave/consumer_options.hpp>
#include <batchweave/cursor.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/slice.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/tgb/reader.hpp>
#include <batchweave/waiting.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::detail {

template <object_store Store, class Codecs>
struct consumer_core {
  consumer_core(Store s, consumer_options o, manifest::stream_info i, asio::any_io_executor ex)
      : store(std::move(s)), options(std::move(o)), stream(std::move(i)), clock(options.clock()), budget(options.budget()),
        random(options.random()), tasks(std::move(ex)) {}

  struct fetched {
    bool done = false;
    std::optional<slice> value;
    std::optional<failure> failed;
    memory_budget::lease room;
  };
  struct known_step {
    std::uint64_t step = 0;
    manifest::tgb_entry entry;
  };

  using self_ptr = std::shared_ptr<consumer_core>;
  static constexpr std::size_t known_ahead = 4096;  // entries held before following pauses

  Store store;
  consumer_options options;
  manifest::stream_info stream;
  any_clock clock;
  memory_budget budget;
  random64 random;  // only follow and open use it
  std::optional<store_trouble> opening;  // until it is open
  task_group tasks;
  std::vector<manifest::segment_ref> segments;    // of the newest version that was looked at; only follow and open use it
  std::uint64_t sealed = 0;                       // steps below are in segments, those above in the versions that follow() reads
  std::optional<commit::open_segment> segment;    // the one that is being read
  std::shared_ptr<const manifest::version> located;  // what locate() found, so that it is not read again

  std::mutex mutex;  // guards all below
  async_event changed;
  std::uint64_t deliver = 0;         // next step for the caller
  std::uint64_t discover = 0;        // next step to find in the log
  std::uint64_t start_fetch = 0;     // next step to fetch
  std::deque<known_step> known;      // steps [start_fetch, discover)
  std::deque<std::shared_ptr<fetched>> window;  // steps [deliver, start_fetch)
  std::optional<std::uint64_t> final_step;
  std::optional<failure> stopped_by;
  std::string last_committer;
  std::string trouble;  // the store's last failure while it is asked again
  std::uint64_t head = 0;
  time_point head_moved{};

  wait_state waits_for() const {
    if (!window.empty() && window.front()->done) return {};
    if (window.empty() && final_step && deliver >= *final_step) return {};
    if (!trouble.empty()) return wait_state(wait_reason::store_failing, "waiting for step " + std::to_string(deliver) + ": " + trouble);
    if (!window.empty()) return wait_state(wait_reason::fetching, "step " + std::to_string(deliver) + " is being fetched");
    if (discover > deliver) {
      return wait_state(wait_reason::memory_budget, "step " + std::to_string(deliver) + " waits for room in the memory budget");
    }
    const double age = std::chrono::duration<double>(clock.now() - head_moved).count();
    std::string text = "waiting for step " + std::to_string(deliver) + ": the stream has " + std::to_string(head) + " steps since " +
                       std::to_string(age) + " s";
    if (!last_committer.empty()) text += ", last commit by producer " + last_committer;
    return wait_state(wait_reason::step_not_visible, std::move(text));
  }

  // For patiently: what the store answers while it is asked again.
  auto note_trouble() {
    return [this](const failure* f) {
      if (opening) (*opening)(f);
      const std::lock_guard lock(mutex);
      trouble = f ? f->what() : std::string();
    };
  }

  void stop(failure f) {
    {
      const std::lock_guard lock(mutex);
      if (!stopped_by) stopped_by = std::move(f);
    }
    changed.notify();
  }

  // ---- next ----------------------------------------------------------------------------------------------------

  static asio::awaitable<std::optional<slice>> next(self_ptr self) {
    const time_point begun = self->clock.now();
    time_point report = begun + self->options.wait_bound();
    for (;;) {
      const async_event::ticket seen = self->changed.observe();
      std::optional<slice> out;
      bool got = false;
      {
        const std::lock_guard lock(self->mutex);
        if (!self->window.empty() && self->window.front()->done) {
          fetched& front = *self->window.front();
          if (front.failed) throw error(*front.failed);
          out = std::move(front.value);
          self->window.pop_front();
          ++self->deliver;
          got = true;
        } else if (self->window.empty()) {
          if (self->final_step && self->deliver >= *self->final_step) co_return std::nullopt;
          // What is known is delivered before a failure to learn more is reported.
          if (self->stopped_by && self->known.empty()) throw error(*self->stopped_by);
        }
        if (!got && self->options.max_wait() && self->clock.now() >= begun + *self->options.max_wait()) {
          throw error(failure(errc::waited_too_long, self->who() + self->waits_for().text()).with_fate(fate::did_not_happen));
        }
      }
      if (got) {
        self->changed.notify();
        self->measure_delivery(*out, begun);
        co_return out;
      }
      std::optional<time_point> until;
      if (self->options.max_wait()) until = begun + *self->options.max_wait();
      if (self->reports_waits()) {
        if (self->clock.now() >= report) {
          self->report_wait();
          report = self->clock.now() + self->options.wait_bound();
        }
        until = until ? std::min(*until, report) : report;
      }
      if (until) co_await self->changed.wait_until(seen, self->clock, *until);
      else co_await self->changed.wait(seen);
    }
  }

  bool reports_waits() const { return options.on_wait() || options.metrics(); }
  void report_wait() {
    wait_state now;
    {
      const std::lock_guard lock(mutex);
      now = waits_for();
    }
    options.metrics().record(metrics::consumer_waits, to_string(now.reason()));
    if (options.on_wait()) options.on_wait()(wait_state(now.reason(), who() + now.text()));
  }
  std::string label() const { return options.group() + "/" + std::to_string(options.rank()); }
  double seconds_since(time_point t) const { return std::chrono::duration<double>(clock.now() - t).count(); }
  void measure_delivery(const slice& s, time_point begun) {
    const any_metrics& sink = options.metrics();
    if (!sink) return;
    const std::string me = label();
    std::uint64_t lag = 0;
    {
      const std::lock_guard lock(mutex);
      lag = head > deliver ? head - deliver : 0;
    }
    sink.record(metrics::steps_delivered, me);
    sink.record(metrics::bytes_delivered, me, static_cast<double>(s.bytes().size()));
    sink.record(metrics::next_seconds, me, seconds_since(begun));
    sink.record(metrics::lag_steps, me, static_cast<double>(lag));
  }

  std::string who() const {
    return "group " + options.group() + " rank " + std::to_string(options.rank()) + "/" + std::to_string(options.world_size()) + ": ";
  }

  // ---- follow the log ------------------------------------------------------------------------------------------

  // Takes the entries of steps from `first` on that are still to come. Under the mutex.
  void learn(std::uint64_t first, const std::vector<manifest::tgb_entry>& entries) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (first + i != discover) continue;
      known_step k;
      k.step = discover++;
      k.entry = entries[i];
      known.push_back(std::move(k));
    }
  }

  // Takes the entries of one version that are still to come; true when the stream ends with it.
  bool absorb(const manifest::version& v) {
    bool ended = false;
    {
      const std::lock_guard lock(mutex);
      learn(v.first_step, v.entries);
      if (v.summary.next_step > head || head_moved == time_point{}) {
        head = v.summary.next_step;
        head_moved = clock.now();
      }
      if (!v.entries.empty() && v.summary.next_step >= head) last_committer = v.entries.back().producer;
      if (v.summary.closed) final_step = v.summary.final_step;
      ended = v.summary.closed && discover >= v.summary.final_step;
    }
    changed.notify();
    return ended;
  }

  static asio::awaitable<void> follow(self_ptr self, std::uint64_t number) {
    try {
      bool more = true;
      while (more) more = co_await self->follow_one(number);
    } catch (const std::exception& e) {  // a store may throw anything
      if (is_cancellation(e)) throw;
      self->stop(failure(errc::bug, self->who() + "following the log: " + e.what()));
    }
  }

  // Reads the block of the sealed index that holds the next step.
  asio::awaitable<bool> follow_sealed(std::uint64_t wanted, std::uint64_t& number) {
    const auto ref = std::find_if(segments.begin(), segments.end(), [&](const auto& g) { return g.first <= wanted && wanted < g.end; });
    bool found = ref != segments.end();
    if (found && (!segment || segment->ref != *ref)) {
      const manifest::segment_ref wanted_ref = *ref;
      auto read = [&] { return commit::read_segment_head(store, stream, wanted_ref); };
      auto head_read = co_await patiently(clock, random, options.give_up_after(), read);
      if (!head_read) {
        stop(in_context(head_read.error(), who() + "finding step " + std::to_string(wanted)));
        co_return false;
      }
      segment = std::move(*head_read);
      found = segment.has_value();
    }
    if (found) {
      const std::size_t block = segment->index.block_of(wanted);
      auto read = [&] { return commit::read_segment_block(store, *segment, block); };
      auto entries = co_await patiently(clock, random, options.give_up_after(), read);
      if (!entries) {
        stop(in_context(entries.error(), who() + "finding step " + std::to_string(wanted)));
        co_return false;
      }
      found = entries->has_value();
      if (found) {
        bool ended = false;
        {
          const std::lock_guard lock(mutex);
          learn(segment->index.first_of(block), **entries);
          ended = final_step && discover >= *final_step;
        }
        changed.notify();
        co_return !ended;
      }
    }
    segment.reset();  // merged or trimmed meanwhile
    result<std::uint64_t> at = co_await locate(wanted);
    if (!at) {
      stop(at.error());
      co_return false;
    }
    number = *at;
    co_return goes_on();
  }

  // After locate(), which may have learnt that the stream has ended: next() waits for that, and there is no version left to follow.
  bool goes_on() {
    bool ended = false;
    {
      const std::lock_guard lock(mutex);
      ended = final_step && discover >= *final_step;
    }
    changed.notify();
    return !ended;
  }

  asio::awaitable<bool> follow_one(std::uint64_t& number) {
    for (;;) {
      const async_event::ticket seen = changed.observe();
      {
        const std::lock_guard lock(mutex);
        if (known.size() < known_ahead) break;
      }
      co_await changed.wait(seen);
    }
    std::uint64_t next_step = 0;
    {
      const std::lock_guard lock(mutex);
      next_step = discover;
    }
    if (next_step < sealed) co_return co_await follow_sealed(next_step, number);
    if (const auto v = std::exchange(located, nullptr); v && v->number == number) {
      ++number;
      co_return !absorb(*v);
    }
    duration pause = std::min<duration>(options.poll_interval(), std::chrono::milliseconds(5));
    for (;;) {
      auto read = [&] { return commit::read_version<Codecs>(store, stream, number); };
      result<commit::log_entry> entry = co_await patiently(clock, random, options.give_up_after(), read, note_trouble());
      if (!entry) {
        stop(in_context(entry.error(), who() + "following the log"));
        co_return false;
      }
      if (entry->what == commit::log_entry::kind::present) {
        ++number;
        co_return !absorb(*entry->version);
      }
      if (entry->what == commit::log_entry::kind::tombstone) {
        std::uint64_t wanted = 0;
        {
          const std::lock_guard lock(mutex);
          wanted = discover;
        }
        result<std::uint64_t> found = co_await locate(wanted);
        if (!found) {
          stop(found.error());
          co_return false;
        }
        number = *found;
        co_return goes_on();
      }
      co_await clock.wait_for(jittered(pause, random, 0.75, 1.25));
      pause = std::min(options.poll_interval(), pause * 2);
    }
  }

  // The number of the version that holds `step`, or of the next version when the step is not there yet; for a step that is sealed that
  // of the first version that is not. Versions and steps are both monotone: interpolation, then bisection, O(log versions) reads.
  // When the version that holds it is sealed and buried during the search, the step is in a segment by now: look again.
  asio::awaitable<result<std::uint64_t>> locate(std::uint64_t step) {
    std::uint64_t seen = 0;
    for (unsigned n = 1;; ++n) {
      result<std::uint64_t> found = co_await locate_in_newest(step, seen);
      if (found || found.error().code() != errc::object_changed || n == 8) co_return found;
    }
  }

  // `seen`: the newest version that was looked at. Error object_changed: look again.
  asio::awaitable<result<std::uint64_t>> locate_in_newest(std::uint64_t step, std::uint64_t& seen) {
    result<commit::tail_view> tail = co_await commit::await_tail<Codecs>(store, stream, clock, random, options.give_up_after(), seen);
    if (tail && step > tail->version->summary.next_step) {
      // Whoever names this step has seen it in the log: a listing that lags must not pass for the end of the stream.
      const std::uint64_t listed = tail->version->number;
      tail = co_await commit::await_tail_by_number<Codecs>(store, stream, clock, random, options.give_up_after(), listed);
    }
    if (!tail) co_return in_context(tail.error(), who() + "opening at step " + std::to_string(step));
    const manifest::version& newest = *tail->version;
    seen = newest.number;
    {
      const std::lock_guard lock(mutex);
      head = newest.summary.next_step;
      head_moved = clock.now();
      if (newest.summary.closed) final_step = newest.summary.final_step;
    }
    if (step < newest.summary.trim_step) {
      co_return failure(errc::reclaimed, who() + "step " + std::to_string(step) + " was reclaimed; the oldest step left is " +
                                             std::to_string(newest.summary.trim_step));
    }
    if (step > newest.summary.next_step) {
      co_return failure(errc::beyond_end, who() + "step " + std::to_string(step) + " is beyond the stream's " +
                                              std::to_string(newest.summary.next_step) + " steps");
    }
    segments = newest.summary.segments;
    sealed = newest.summary.sealed_step;
    if (step < sealed) co_return newest.summary.oldest_version;
    if (step == newest.summary.next_step) co_return newest.number + 1;
    if (step >= newest.first_step) {
      located = tail->version;
      co_return newest.number;
    }
    std::uint64_t low = std::max<std::uint64_t>(1, newest.summary.oldest_version);  // may hold it
    std::uint64_t high = newest.number;                                              // first_step > step
    std::uint64_t low_step = std::max(newest.summary.trim_step, newest.summary.sealed_step);
    std::uint64_t high_step = newest.first_step;
    for (unsigned probes = 0; low < high; ++probes) {
      std::uint64_t at = low + (high - low) / 2;
      if (probes % 3 != 2 && high_step > low_step) {
        const double share = static_cast<double>(step - low_step) / static_cast<double>(high_step - low_step);
        at = std::min(high - 1, low + static_cast<std::uint64_t>(share * static_cast<double>(high - low)));
      }
      auto read = [&] { return commit::read_version<Codecs>(store, stream, at); };
      result<commit::log_entry> entry = co_await patiently(clock, random, options.give_up_after(), read, note_trouble());
      if (!entry) co_return in_context(entry.error(), who() + "finding step " + std::to_string(step));
      if (entry->what != commit::log_entry::kind::present) {
        low = at + 1;  // reclaimed meanwhile: the step, if still there, lies later
        continue;
      }
      const manifest::version& v = *entry->version;
      if (step < v.first_step) {
        high = at;
        high_step = v.first_step;
      } else if (step >= v.summary.next_step) {
        low = at + 1;
        low_step = v.summary.next_step;
      } else {
        located = entry->version;
        co_return at;
      }
    }
    co_return failure(errc::object_changed, who() + "step " + std::to_string(step) +
                                                " is neither in the log nor in a segment; the log kept being sealed while it was looked for");
  }

  // ---- fetch ---------------------------------------------------------------------------------------------------

  static asio::awaitable<void> prefetch(self_ptr self) {
    try {
      for (;;) co_await prefetch_one(self);
    } catch (const std::exception& e) {  // a store may throw anything
      if (is_cancellation(e)) throw;
      self->stop(failure(errc::bug, self->who() + "prefetching: " + e.what()));
    }
  }

  static asio::awaitable<void> prefetch_one(self_ptr self) {
    known_step step;
    for (;;) {
      const async_event::ticket seen = self->changed.observe();
      bool ready = false;
      {
        const std::lock_guard lock(self->mutex);
        ready = !self->known.empty() && self->window.size() < self->options.prefetch();
        if (ready) step = self->known.front();
      }
      if (ready) break;
      co_await self->changed.wait(seen);
    }
    auto place = std::make_shared<fetched>();
    const std::string unit = self->who() + "step " + std::to_string(step.step);
    result<tgb::read_plan> plan = tgb::plan_read(step.entry.layout, self->options.rank(), self->options.world_size());
    if (!plan) {
      place->failed = in_context(plan.error(), unit);
    } else {
      result<memory_budget::lease> room = co_await self->budget.acquire(plan->range_length(), unit);
      if (!room) place->failed = room.error();
      else place->room = std::move(*room);
    }
    place->done = place->failed.has_value();
    {
      const std::lock_guard lock(self->mutex);
      self->known.pop_front();
      self->window.push_back(place);
      ++self->start_fetch;
    }
    if (place->done) self->changed.notify();
    else self->tasks.spawn(fetch(self, std::move(step), std::move(*plan), std::move(place)));
  }

  static asio::awaitable<void> fetch(self_ptr self, known_step step, tgb::read_plan plan, std::shared_ptr<fetched> place) {
    std::optional<failure> failed;
    std::optional<slice> value;
    try {
      result<slice> got = co_await self->read_slice(step, plan);
      // Wrong bytes with the right length: one more try, over another request, tells a bad wire from a bad object.
      if (!got && got.error().code() == errc::damaged) {
        self->options.metrics().record(metrics::refetches, self->label());
        got = co_await self->read_slice(step, plan);
      }
      if (got) value = std::move(*got);
      else failed = got.error();
    } catch (const std::exception& e) {  // a store may throw anything
      if (is_cancellation(e)) throw;
      failed = failure(errc::bug, self->who() + "fetching: " + e.what());
    }
    {
      const std::lock_guard lock(self->mutex);
      place->value = std::move(value);
      place->failed = std::move(failed);
      place->room.release();
      place->done = true;
    }
    self->changed.notify();
  }

  asio::awaitable<result<slice>> read_slice(const known_step& step, const tgb::read_plan& plan) {
    const manifest::tgb_entry& e = step.entry;
    const std::string key = manifest::tgb_key(e.producer, e.epoch, e.seq);
    const byte_range range(plan.range_offset(), plan.range_length());
    const std::string where = who() + "step " + std::to_string(step.step) + ", " + store.name() + " " + key + ", " + range.to_string();
    byte_buffer data(plan.slice_bytes(), options.memory_resource());
    byte_buffer side(plan.side_bytes());
    const time_point begun = clock.now();
    if (range.length() > 0) {
      random64 jitter(step.step ^ stream.id.lo());
      auto read = [&] {
        const mutable_buffers into = plan.scatter(data.bytes(), side.bytes());
        return store.get(key, range, into);
      };
      result<read_outcome> got = co_await patiently(clock, jitter, options.give_up_after(), read, note_trouble());
      if (!got) co_return in_context(got.error(), where);
      if (!got->found()) {
        // A rank that lags behind what its own group retains.
        result<commit::tail_view> tail = co_await commit::await_tail<Codecs>(store, stream, clock, jitter, options.give_up_after(), 0);
        if (tail && step.step < tail->version->summary.trim_step) {
          co_return failure(errc::reclaimed, where + ": the step was reclaimed; the oldest step left is " +
                                                 std::to_string(tail->version->summary.trim_step));
        }
        co_return failure(errc::object_missing, where + ": the object is gone although the log names it; roll back to a retained "
                                                        "checkpoint or restore the object");
      }
      if (got->bytes() != range.length()) {
        co_return failure(errc::damaged, where + ": the object has " + std::to_string(got->object_size()) +
                                             " bytes, too few for the range; it is truncated");
      }
    }
    result<void> checked = plan.verify(data.bytes(), side.bytes());
    if (options.metrics()) options.metrics().record(metrics::fetch_seconds, label(), seconds_since(begun));
    if (!checked) co_return in_context(checked.error(), where);
    co_return slice(step.step, std::move(data), plan.slice_sizes(), e.producer, e.samples, e.tag);
  }
};

}  // namespace batchweave::detail
