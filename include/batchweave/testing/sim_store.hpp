// A simulated object store in virtual time: latency and bandwidth for every operation, and faults that a hook decides.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/store/key.hpp>
#include <batchweave/store/store.hpp>
#include <batchweave/testing/faulty_store.hpp>
#include <batchweave/testing/sim_clock.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::testing {

/// How long operations take: lognormal around a median for each kind of operation, plus the bytes at a bandwidth.
class sim_latency {
 public:
  sim_latency() = default;
  sim_latency& median(op verb, duration d) { median_[static_cast<std::size_t>(verb)] = d; return *this; }
  /// Standard deviation of the logarithm; 0: always the median. Default 0.35 (p99 about 2.3 medians).
  sim_latency& sigma(double s) { sigma_ = s; return *this; }
  /// Of one request. Default 100 MB/s.
  sim_latency& bytes_per_second(double b) { bandwidth_ = b; return *this; }

  template <random_source R>
  duration draw(op verb, std::uint64_t bytes, R& random) const {
    const double base = static_cast<double>(median_[static_cast<std::size_t>(verb)].count());
    double factor = 1;
    if (sigma_ > 0) {
      const double u = 1 - random.uniform();
      const double z = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * random.uniform());
      factor = std::exp(sigma_ * z);
    }
    return duration(static_cast<duration::rep>(base * factor + static_cast<double>(bytes) / bandwidth_ * 1e9));
  }

 private:
  std::array<duration, 5> median_{std::chrono::milliseconds(15), std::chrono::milliseconds(35), std::chrono::milliseconds(12),
                                  std::chrono::milliseconds(15), std::chrono::milliseconds(20)};
  double sigma_ = 0.35;
  double bandwidth_ = 100e6;
};

/// One operation as the store sees it. For remove, `key` is the first one.
class sim_request {
 public:
  sim_request() {}
  op verb = op::get;
  std::string key;
  std::vector<std::byte> body;   ///< of a put
  put_condition condition;       ///< of a put
  std::vector<std::string> keys; ///< of a remove
  sim_process* process = nullptr;
  std::uint64_t number = 0;      ///< of the process's operations, 1 for the first
};

/// What goes wrong with one operation.
class sim_fault {
 public:
  enum class kind : std::uint8_t {
    none,
    refuse,        ///< not applied, answered with `code` and `fate`
    fail_applied,  ///< applied, answered with `code` and an unknown fate
    own_412,       ///< a conditional put is applied and answered "condition failed": the client library repeated it by itself
    late,          ///< answered with `code` now, applied after `delay`
    reset_body,    ///< a get delivers some bytes and then fails with `code`
    lag,           ///< a list does not show what was written within `delay`
    slow,          ///< takes `delay` longer
    some_keys,     ///< a removal leaves two keys of three, each with a reason of its own
    crash_before,  ///< the process dies before the request is sent
    crash_sent,    ///< the process dies when the request is sent; it may be applied all the same
    crash_applied  ///< the process dies before the answer arrives
  };
  sim_fault() {}
  sim_fault(kind w, errc c, fate f, duration d) : what(w), code(c), outcome(f), delay(d) {}
  sim_fault with_status(int s) const { sim_fault f = *this; f.status = s; return f; }
  kind what = kind::none;
  errc code = errc::bug;
  batchweave::fate outcome = fate::unknown;
  duration delay{0};
  int status = 0;  ///< HTTP status of the failure, 0: none
};
inline constexpr std::array<std::string_view, 12> sim_fault_names{"none", "refuse", "fail_applied", "own_412", "late", "reset_body", "lag",
                                                                   "slow", "some_keys", "crash_before", "crash_sent", "crash_applied"};

/// Decides faults and watches. Every member is called on the one thread of the simulation.
class sim_hooks {
 public:
  virtual ~sim_hooks() = default;
  /// Before a request is sent.
  virtual sim_fault fault(const sim_request&) { return sim_fault(); }
  /// The client asks for it.
  virtual void asked(const sim_request&) {}
  /// It reached the store; `before`: what lay under the key (puts and removes; null: nothing), `done`: whether it took effect.
  virtual void reached(const sim_request&, const std::vector<std::byte>* before, bool done) { static_cast<void>(before); static_cast<void>(done); }
  /// The client was told: success (for a put also that the condition failed), or a failure.
  virtual void answered(const sim_request&, const sim_fault&, bool success, bool applied) {
    static_cast<void>(success);
    static_cast<void>(applied);
  }
  /// A fault says that the process dies here.
  virtual void crash(sim_process&) {}
};

/// The bucket that stores of a simulation share. Not thread safe; must outlive the run.
class sim_bucket {
 public:
  explicit sim_bucket(sim_timeline& time, std::uint64_t seed = 1) : time_(&time), seed_(seed) {}
  sim_bucket(const sim_bucket&) = delete;
  sim_bucket& operator=(const sim_bucket&) = delete;

  sim_bucket& latency(sim_latency l) { latency_ = l; return *this; }
  /// Hooks must outlive the run.
  sim_bucket& hooks(sim_hooks* h) { hooks_ = h; return *this; }
  /// false: listings come in an order that is not that of the keys.
  sim_bucket& ordered(bool o) { ordered_ = o; return *this; }
  /// Requests to keys with this prefix beyond `per_second` (with bursts of one second) are answered 503 SlowDown.
  sim_bucket& rate_limit(std::string prefix, double per_second) {
    limit l;
    l.prefix = std::move(prefix);
    l.per_second = l.tokens = per_second;
    limits_.push_back(std::move(l));
    return *this;
  }

  using body_ptr = std::shared_ptr<const std::vector<std::byte>>;
  struct object {
    body_ptr body;
    std::uint64_t etag = 0;
    time_point written{};
  };
  using objects_map = std::map<std::string, object, std::less<>>;
  /// What the bucket holds at this moment.
  const objects_map& objects() const noexcept { return objects_; }
  /// Writes at once, past latency, faults and hooks.
  void place(std::string key, std::vector<std::byte> bytes) {
    object& o = objects_[std::move(key)];
    o.body = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    o.etag = ++writes_;
    o.written = time_->now();
  }
  /// Of all objects.
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [key, o] : objects_) sum += o.body->size();
    return sum;
  }
  std::uint64_t operations() const noexcept { return operations_; }
  std::uint64_t throttled() const noexcept { return throttled_; }
  sim_timeline& time() const noexcept { return *time_; }

 private:
  friend class sim_store;
  struct limit {
    std::string prefix;
    double per_second = 0, tokens = 0;
    time_point last{};
  };
  struct exchange {  // one operation on its way
    sim_request request;
    sim_fault fault;
    std::string after;  // of a list
    std::size_t max = 0;
    bool done = false;  // a put took effect
    std::uint64_t etag = 0;
    body_ptr found;
    list_page page;
    std::vector<remove_failure> left;
  };

  bool over_limit(const std::string& key) {
    bool over = false;
    for (limit& l : limits_) {
      if (!key.starts_with(l.prefix)) continue;
      const double passed = std::chrono::duration<double>(time_->now() - l.last).count();
      l.tokens = std::min(l.per_second, l.tokens + passed * l.per_second);
      l.last = time_->now();
      if (l.tokens < 1) over = true;
      else l.tokens -= 1;
    }
    throttled_ += over;
    return over;
  }
  static std::string etag_text(std::uint64_t e) { return "\"s" + std::to_string(e) + "\""; }

  void reach(exchange& x) {
    switch (x.request.verb) {
      case op::get:
      case op::head: {
        const auto at = objects_.find(x.request.key);
        if (at != objects_.end()) {
          x.found = at->second.body;
          x.etag = at->second.etag;
        }
        break;
      }
      case op::put: {
        const auto at = objects_.find(x.request.key);
        const bool there = at != objects_.end();
        const put_condition& c = x.request.condition;
        const body_ptr before = there ? at->second.body : nullptr;
        x.done = !(c.absent() && there) && !(c.etag() && (!there || etag_text(at->second.etag) != *c.etag()));
        if (x.done) {
          object o;
          o.body = std::make_shared<const std::vector<std::byte>>(x.request.body);
          o.etag = x.etag = ++writes_;
          o.written = time_->now();
          if (there) at->second = std::move(o);
          else objects_.emplace(x.request.key, std::move(o));
        }
        if (hooks_) hooks_->reached(x.request, before.get(), x.done);
        return;
      }
      case op::list: fill(x); break;
      case op::remove: {
        sim_request one;
        one.verb = op::remove;
        one.process = x.request.process;
        one.number = x.request.number;
        std::size_t i = 0;
        for (const std::string& key : x.request.keys) {
          if (x.fault.what == sim_fault::kind::some_keys && ++i % 3 != 0) {
            const errc why = i % 3 == 1 ? errc::throttled : errc::access_denied;
            x.left.emplace_back(key, failure(why, "sim: remove " + key + ": simulated fault").with_fate(fate::did_not_happen));
            continue;
          }
          const auto at = objects_.find(key);
          const body_ptr before = at != objects_.end() ? at->second.body : nullptr;
          if (before) objects_.erase(at);
          one.key = key;
          if (hooks_) hooks_->reached(one, before.get(), before != nullptr);
        }
        return;
      }
    }
    if (hooks_) hooks_->reached(x.request, nullptr, true);
  }

  void fill(exchange& x) {
    const std::string& prefix = x.request.key;
    const time_point newest = x.fault.what == sim_fault::kind::lag ? time_->now() - x.fault.delay : time_point::max();
    const auto take = [&](const std::string& key, const object& o) {
      if (o.written > newest) return true;
      if (x.page.objects().size() == x.max) {
        x.page.more(true);
        return false;
      }
      x.page.objects().emplace_back(key, o.body->size(), etag_text(o.etag));
      return true;
    };
    if (ordered_) {
      auto at = x.after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(x.after);
      for (; at != objects_.end() && at->first.starts_with(prefix); ++at) {
        if (!take(at->first, at->second)) return;
      }
      return;
    }
    std::vector<std::pair<std::uint64_t, const std::string*>> mixed;
    const auto place_of = [](const std::string& key) { return xxh3(as_bytes(key)); };
    for (auto at = objects_.lower_bound(prefix); at != objects_.end() && at->first.starts_with(prefix); ++at) {
      if (x.after.empty() || place_of(at->first) > place_of(x.after)) mixed.emplace_back(place_of(at->first), &at->first);
    }
    std::sort(mixed.begin(), mixed.end());
    for (const auto& [place, key] : mixed) {
      if (!take(*key, objects_.find(*key)->second)) return;
    }
  }

  sim_timeline* time_;
  std::uint64_t seed_;
  sim_latency latency_;
  sim_hooks* hooks_ = nullptr;
  bool ordered_ = true;
  std::vector<limit> limits_;
  objects_map objects_;
  std::uint64_t writes_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t throttled_ = 0;
};

/// A store (batchweave::object_store) over a sim_bucket for one process. A request reaches the bucket somewhere within its latency; what
/// it does there happens even when the process stalls or dies meanwhile. A cheap copyable handle.
class sim_store {
 public:
  explicit sim_store(sim_bucket& bucket, sim_process* process = nullptr) : bucket_(&bucket), process_(process) {}

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_from(bucket_, process_, std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_to(bucket_, process_, std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_of(bucket_, process_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_of(bucket_, process_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_from(bucket_, process_, std::move(keys));
  }
  store_capabilities capabilities() const noexcept {
    store_capabilities c;
    c.ordered_list = bucket_->ordered_;
    return c;
  }
  std::string name() const { return "sim:"; }

 private:
  using exchange = sim_bucket::exchange;
  using exchange_ptr = std::shared_ptr<exchange>;
  using kind = sim_fault::kind;

  static exchange_ptr begin(sim_bucket& b, sim_process* p, op verb, std::string key) {
    auto x = std::make_shared<exchange>();
    x->request.verb = verb;
    x->request.key = std::move(key);
    x->request.process = p;
    ++b.operations_;
    x->request.number = p ? p->count_operation() : b.operations_;
    return x;
  }

  // Sends the request, lets it reach the bucket, waits for the answer. Throws operation_aborted when the process is gone.
  static asio::awaitable<std::optional<failure>> travel(sim_bucket* b, exchange_ptr x, std::uint64_t bytes) {
    sim_request& r = x->request;
    sim_timeline& time = *b->time_;
    if (r.process && r.process->dead()) co_await time.wait_until(time.now(), r.process);
    if (auto wrong = batchweave::detail::check_key("sim:", r.key)) co_return *wrong;
    if (b->hooks_) {
      b->hooks_->asked(r);
      x->fault = b->hooks_->fault(r);
    }
    if (x->fault.what == kind::none && b->over_limit(r.key)) {
      x->fault = sim_fault(kind::refuse, errc::throttled, fate::unknown, duration(0));
    }
    const sim_fault& f = x->fault;
    random64 random(b->seed_ ^ (r.number * 0x9e3779b97f4a7c15u) ^ (std::uint64_t{r.process ? r.process->number() + 1 : 0} << 40));
    random();
    const duration whole = b->latency_.draw(r.verb, bytes, random);
    duration reach = duration(static_cast<duration::rep>(static_cast<double>(whole.count()) * random.uniform(0.3, 0.9)));
    duration answer = whole;
    if (f.what == kind::crash_before) {
      b->hooks_->crash(*r.process);
      co_await time.wait_until(time.now(), r.process);
    }
    if (f.what == kind::slow || f.what == kind::fail_applied || f.what == kind::refuse) answer += f.delay;
    if (f.what == kind::late) reach = f.delay;
    if (f.what != kind::refuse) time.after(reach, [b, x] { b->reach(*x); });
    if (f.what == kind::crash_sent) {
      b->hooks_->crash(*r.process);
      co_await time.wait_until(time.now(), r.process);
    }
    if (f.what == kind::crash_applied) {
      time.after(reach, [b, x] { b->hooks_->crash(*x->request.process); });
      answer += std::chrono::milliseconds(1);
    }
    co_await time.wait_until(time.now() + answer, r.process);
    const bool fails = f.what == kind::refuse || f.what == kind::fail_applied || f.what == kind::late || f.what == kind::reset_body;
    if (b->hooks_) b->hooks_->answered(r, f, !fails, x->done && f.what != kind::own_412);
    if (!fails) co_return std::nullopt;
    co_return failure(f.code, std::string("sim: ") + to_string(r.verb) + " " + r.key + ": simulated fault")
        .with_fate(f.what == kind::refuse ? f.outcome : fate::unknown)
        .with_status(f.status);
  }

  static std::uint64_t copy_out(const std::vector<std::byte>& from, std::uint64_t offset, std::uint64_t n, const mutable_buffers& into) {
    const std::uint64_t first = std::min<std::uint64_t>(offset, from.size());
    const std::uint64_t wanted = std::min<std::uint64_t>(n, from.size() - first);
    std::uint64_t done = 0;
    for (const mutable_bytes piece : into) {
      const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), wanted - done));
      if (part) std::memcpy(piece.data(), from.data() + first + done, part);
      done += part;
    }
    return wanted;
  }

  static asio::awaitable<result<read_outcome>> get_from(sim_bucket* b, sim_process* p, std::string key, byte_range range,
                                                        mutable_buffers into) {
    exchange_ptr x = begin(*b, p, op::get, std::move(key));
    if (total_size(into) < range.length()) {
      co_return failure(errc::invalid_argument, "sim: get " + x->request.key + ": the destination is smaller than the range")
          .with_fate(fate::did_not_happen);
    }
    // The size is not known yet: what lies there now is a fair guess for the time it takes.
    const auto there = b->objects_.find(x->request.key);
    const std::uint64_t bytes = there == b->objects_.end() ? 0 : std::min<std::uint64_t>(range.length(), there->second.body->size());
    std::optional<failure> failed = co_await travel(b, x, bytes);
    if (failed) {
      if (x->fault.what == kind::reset_body && x->found) copy_out(*x->found, range.offset(), range.length() / 2, into);
      co_return *failed;
    }
    if (!x->found) co_return read_outcome();
    const std::uint64_t got = copy_out(*x->found, range.offset(), range.length(), into);
    co_return read_outcome(got, x->found->size(), sim_bucket::etag_text(x->etag));
  }

  static asio::awaitable<result<put_outcome>> put_to(sim_bucket* b, sim_process* p, std::string key, const_buffers body,
                                                     put_condition condition) {
    exchange_ptr x = begin(*b, p, op::put, std::move(key));
    x->request.body.reserve(total_size(body));
    for (const const_bytes piece : body) x->request.body.insert(x->request.body.end(), piece.begin(), piece.end());
    x->request.condition = std::move(condition);
    std::optional<failure> failed = co_await travel(b, x, x->request.body.size());
    if (failed) co_return *failed;
    if (!x->done || x->fault.what == kind::own_412) co_return put_outcome::condition_failed();
    co_return put_outcome::done(sim_bucket::etag_text(x->etag));
  }

  static asio::awaitable<result<std::optional<object_info>>> head_of(sim_bucket* b, sim_process* p, std::string key) {
    exchange_ptr x = begin(*b, p, op::head, std::move(key));
    std::optional<failure> failed = co_await travel(b, x, 0);
    if (failed) co_return *failed;
    if (!x->found) co_return std::optional<object_info>();
    co_return std::optional<object_info>(object_info(x->request.key, x->found->size(), sim_bucket::etag_text(x->etag)));
  }

  static asio::awaitable<result<list_page>> list_of(sim_bucket* b, sim_process* p, std::string prefix, std::string after, std::size_t max) {
    exchange_ptr x = begin(*b, p, op::list, std::move(prefix));
    x->after = std::move(after);
    x->max = max;
    std::optional<failure> failed = co_await travel(b, x, 0);
    if (failed) co_return *failed;
    co_return std::move(x->page);
  }

  static asio::awaitable<result<std::vector<remove_failure>>> remove_from(sim_bucket* b, sim_process* p, std::vector<std::string> keys) {
    std::vector<remove_failure> none;
    if (keys.empty()) co_return none;
    exchange_ptr x = begin(*b, p, op::remove, keys.front());
    x->request.keys = std::move(keys);
    std::optional<failure> failed = co_await travel(b, x, 0);
    if (failed) co_return *failed;
    co_return std::move(x->left);
  }

  sim_bucket* bucket_;
  sim_process* process_;
};

static_assert(object_store<sim_store>);

}  // namespace batchweave::testing
