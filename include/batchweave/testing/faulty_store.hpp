// A store decorator that fails on purpose: scripted, seeded, and with a record of every operation.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/store/store.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::testing {

enum class op { get, put, head, list, remove };

inline const char* to_string(op o) noexcept {
  static constexpr const char* names[] = {"get", "put", "head", "list", "remove"};
  return names[static_cast<std::size_t>(o)];
}

/// Thrown by every operation of a store that crashed: what unwinds is what a killed process would have been doing.
class crashed : public std::runtime_error {
 public:
  crashed() : std::runtime_error("the faulty store crashed here, as scripted") {}
};

/// One operation as it was asked for. For remove: one record with the first key.
class operation {
 public:
  operation(op verb, std::string key, std::uint64_t number) : verb_(verb), key_(std::move(key)), number_(number) {}
  op verb() const noexcept { return verb_; }
  const std::string& key() const noexcept { return key_; }
  /// 1 for the first operation of the plan.
  std::uint64_t number() const noexcept { return number_; }

 private:
  op verb_;
  std::string key_;
  std::uint64_t number_;
};

/// What happens to one operation.
class action {
 public:
  enum class kind { pass, fail_before, lose, apply_then_fail, apply_later, condition_fails, ignore_condition, flip, cut, crash_before, crash_after };

  action() noexcept = default;  ///< pass
  /// Not applied, and the caller knows it.
  static action fail_before(errc e) { return action(kind::fail_before, e); }
  /// Not applied, but the caller cannot know.
  static action lose(errc e) { return action(kind::lose, e); }
  /// Applied, but the caller cannot know.
  static action apply_then_fail(errc e) { return action(kind::apply_then_fail, e); }
  /// A put that is applied when release_held() says so; the caller gets a failure with an unknown fate now.
  static action apply_later(errc e) { return action(kind::apply_later, e); }
  /// A put answers that its condition does not hold and is not applied.
  static action condition_fails() { return action(kind::condition_fails, errc::bug); }
  /// A put overwrites whatever is there: a store that ignores If-None-Match.
  static action ignore_condition() { return action(kind::ignore_condition, errc::bug); }
  /// A get delivers byte `at` of its answer with one bit changed.
  static action flip(std::size_t at) { action a(kind::flip, errc::bug); a.number_ = at; return a; }
  /// A get delivers only `bytes` bytes and says so.
  static action cut(std::size_t bytes) { action a(kind::cut, errc::bug); a.number_ = bytes; return a; }
  /// This operation does not happen, and this one and all later ones throw `crashed`.
  static action crash_before() { return action(kind::crash_before, errc::bug); }
  /// This operation happens, and this one and all later ones throw `crashed`.
  static action crash_after() { return action(kind::crash_after, errc::bug); }

  /// Waits first, through the clock of the plan.
  action& after(duration d) & { delay_ = d; return *this; }
  action&& after(duration d) && { delay_ = d; return std::move(*this); }

  kind what() const noexcept { return kind_; }
  errc code() const noexcept { return code_; }
  std::size_t number() const noexcept { return number_; }
  duration delay() const noexcept { return delay_; }

 private:
  action(kind k, errc e) noexcept : kind_(k), code_(e) {}
  kind kind_ = kind::pass;
  errc code_ = errc::bug;
  std::size_t number_ = 0;
  duration delay_ = duration::zero();
};

/// One line of a script: which operations it meets, how often, and what happens to them. Belongs to its plan; not thread safe by itself.
class fault_rule {
 public:
  fault_rule(op verb, std::string prefix) : verb_(verb), prefix_(std::move(prefix)) {}
  /// Starts with the n-th match (1-based).
  fault_rule& nth(std::uint64_t n) { first_ = n; if (!limited_) count_ = 1; return *this; }
  /// Meets this many matches from the first one on.
  fault_rule& times(std::uint64_t n) { count_ = n; limited_ = true; return *this; }
  /// Meets a match only with this probability, drawn from the seed of the plan.
  fault_rule& probability(double p) { probability_ = p; return *this; }

  fault_rule& does(action a) { action_ = std::move(a); return *this; }
  fault_rule& fail_before(errc e) { return does(action::fail_before(e)); }
  fault_rule& lose(errc e) { return does(action::lose(e)); }
  fault_rule& apply_then_fail(errc e) { return does(action::apply_then_fail(e)); }
  fault_rule& apply_later(errc e) { return does(action::apply_later(e)); }
  fault_rule& condition_fails() { return does(action::condition_fails()); }
  fault_rule& ignore_condition() { return does(action::ignore_condition()); }
  fault_rule& flip(std::size_t at) { return does(action::flip(at)); }
  fault_rule& cut(std::size_t bytes) { return does(action::cut(bytes)); }
  fault_rule& crash_before() { return does(action::crash_before()); }
  fault_rule& crash_after() { return does(action::crash_after()); }
  /// Adds latency to whatever else happens.
  fault_rule& delay(duration d) { action_.after(d); return *this; }

  std::uint64_t met() const noexcept { return met_; }

  template <random_source R>
  std::optional<action> meet(op verb, const std::string& key, R& random) {
    if (verb != verb_ || !key.starts_with(prefix_)) return std::nullopt;
    const std::uint64_t seen = ++seen_;
    if (seen < first_ || met_ >= count_) return std::nullopt;
    if (probability_ < 1 && random.uniform() >= probability_) return std::nullopt;
    ++met_;
    return action_;
  }

 private:
  op verb_;
  std::string prefix_;
  std::uint64_t first_ = 1;
  std::uint64_t count_ = ~std::uint64_t{0};
  bool limited_ = false;
  double probability_ = 1;
  action action_;
  std::uint64_t seen_ = 0;
  std::uint64_t met_ = 0;
};

/// The script and the record. Copies share both. Thread safe, apart from the rules that `on` returns: set them up before the run.
/// The first rule that meets an operation decides; the hook is asked first.
class fault_plan {
 public:
  explicit fault_plan(std::uint64_t seed = 1, any_clock clock = any_clock()) : state_(std::make_shared<state>(seed, std::move(clock))) {}

  /// A new rule for operations with this verb on keys that start with `prefix` (list: the listed prefix).
  fault_rule& on(op verb, std::string prefix = std::string()) {
    const std::lock_guard lock(state_->mutex);
    state_->rules.push_back(std::make_unique<fault_rule>(verb, std::move(prefix)));
    return *state_->rules.back();
  }
  /// Decides about every operation before the rules do; nullopt leaves it to them.
  void hook(std::function<std::optional<action>(const operation&)> h) {
    const std::lock_guard lock(state_->mutex);
    state_->hook = std::move(h);
  }
  void clear_rules() {
    const std::lock_guard lock(state_->mutex);
    state_->rules.clear();
    state_->hook = nullptr;
  }
  /// Operations after the n-th throw `crashed`, and so does the n-th itself once it was applied.
  void crash_after(std::uint64_t n) {
    const std::lock_guard lock(state_->mutex);
    state_->last = n;
  }
  void crash_now() {
    const std::lock_guard lock(state_->mutex);
    state_->crashed = true;
  }
  bool has_crashed() const {
    const std::lock_guard lock(state_->mutex);
    return state_->crashed;
  }

  std::vector<operation> operations() const {
    const std::lock_guard lock(state_->mutex);
    return state_->record;
  }
  std::uint64_t count(op verb) const {
    const std::lock_guard lock(state_->mutex);
    return state_->counts[static_cast<std::size_t>(verb)];
  }
  std::uint64_t count(op verb, std::string_view prefix) const {
    const std::lock_guard lock(state_->mutex);
    return static_cast<std::uint64_t>(std::count_if(state_->record.begin(), state_->record.end(), [&](const operation& o) {
      return o.verb() == verb && o.key().starts_with(prefix);
    }));
  }
  std::uint64_t count() const {
    const std::lock_guard lock(state_->mutex);
    return state_->number;
  }
  void reset_counts() {
    const std::lock_guard lock(state_->mutex);
    state_->record.clear();
    state_->counts.fill(0);
  }
  /// Puts that wait for release_held().
  std::size_t held() const {
    const std::lock_guard lock(state_->mutex);
    return state_->held.size();
  }

 private:
  template <object_store S>
  friend class faulty_store;

  struct held_put {
    std::string key;
    std::vector<std::byte> body;
    put_condition condition;
  };
  struct state {
    state(std::uint64_t seed, any_clock c) : random(seed), clock(std::move(c)) {}
    mutable std::mutex mutex;
    std::vector<std::unique_ptr<fault_rule>> rules;
    std::function<std::optional<action>(const operation&)> hook;
    random64 random;
    any_clock clock;
    std::vector<operation> record;
    std::array<std::uint64_t, 5> counts{};
    std::uint64_t number = 0;
    std::uint64_t last = ~std::uint64_t{0};
    bool crashed = false;
    std::vector<held_put> held;
  };

  /// Records the operation and decides. Throws `crashed` when it is too late for any.
  static action begin(state& s, op verb, const std::string& key) {
    std::function<std::optional<action>(const operation&)> hook;
    std::optional<operation> now;
    {
      const std::lock_guard lock(s.mutex);
      if (s.crashed) throw testing::crashed();
      ++s.counts[static_cast<std::size_t>(verb)];
      s.record.emplace_back(verb, key, ++s.number);
      now.emplace(s.record.back());
      hook = s.hook;
    }
    std::optional<action> decided;
    if (hook) decided = hook(*now);  // outside the lock: the hook may ask the plan
    const std::lock_guard lock(s.mutex);
    for (auto& rule : s.rules) {
      if (decided) break;
      decided = rule->meet(verb, key, s.random);
    }
    action a = decided ? *decided : action();
    if (now->number() >= s.last && a.what() != action::kind::crash_before) {
      const duration d = a.delay();
      a = action::crash_after().after(d);
    }
    if (a.what() == action::kind::crash_before || a.what() == action::kind::crash_after) s.crashed = true;
    return a;
  }

  std::shared_ptr<state> state_;
};

/// Forwards to `S` unless the plan says otherwise. Copies share store and plan; give every simulated process its own plan over the
/// same store. Thread safe when `S` is. Verbs a fault has no meaning for (flip of a put, condition_fails of a get, ...) pass.
template <object_store S>
class faulty_store {
 public:
  explicit faulty_store(S inner, fault_plan plan = fault_plan()) : inner_(std::move(inner)), plan_(std::move(plan)) {}

  fault_plan& faults() noexcept { return plan_; }
  S& inner() noexcept { return inner_; }

  asio::awaitable<result<read_outcome>> get(std::string key, byte_range range, mutable_buffers into) {
    return get_in(inner_, plan_.state_, std::move(key), range, std::move(into));
  }
  asio::awaitable<result<put_outcome>> put(std::string key, const_buffers body, put_condition condition) {
    return put_in(inner_, plan_.state_, std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<result<std::optional<object_info>>> head(std::string key) { return head_in(inner_, plan_.state_, std::move(key)); }
  asio::awaitable<result<list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return list_in(inner_, plan_.state_, std::move(prefix), std::move(after), max);
  }
  asio::awaitable<result<std::vector<remove_failure>>> remove(std::vector<std::string> keys) {
    return remove_in(inner_, plan_.state_, std::move(keys));
  }
  store_capabilities capabilities() const { return inner_.capabilities(); }
  std::string name() const { return inner_.name(); }

  /// Applies the held puts in the order they were asked for, conditions included; returns how many took effect.
  asio::awaitable<std::size_t> release_held() { return release_in(inner_, plan_.state_); }

 private:
  using state = fault_plan::state;
  using state_ptr = std::shared_ptr<state>;
  using kind = action::kind;

  static failure broken(const action& a, op verb, const std::string& key) {
    return failure(a.code(), std::string("scripted fault: ") + to_string(verb) + " " + key)
        .with_fate(a.what() == kind::fail_before ? fate::did_not_happen : fate::unknown);
  }
  static bool stops_before(kind k) { return k == kind::fail_before || k == kind::lose; }

  static asio::awaitable<void> wait(state_ptr s, duration d) {
    if (d > duration::zero()) co_await s->clock.wait_for(d);
  }

  static asio::awaitable<result<read_outcome>> get_in(S inner, state_ptr s, std::string key, byte_range range, mutable_buffers into) {
    const action a = fault_plan::begin(*s, op::get, key);
    co_await wait(s, a.delay());
    if (a.what() == kind::crash_before) throw crashed();
    if (stops_before(a.what())) co_return broken(a, op::get, key);
    result<read_outcome> got = co_await inner.get(key, range, into);
    if (a.what() == kind::crash_after) throw crashed();
    if (a.what() == kind::apply_then_fail || a.what() == kind::apply_later) co_return broken(a, op::get, key);
    if (a.what() == kind::flip && got && got->found() && got->bytes()) {
      std::size_t at = a.number() % static_cast<std::size_t>(got->bytes());
      for (const mutable_bytes piece : into) {
        if (at < piece.size()) {
          piece[at] ^= std::byte{0x10};
          break;
        }
        at -= piece.size();
      }
    }
    if (a.what() == kind::cut && got && got->found()) {
      co_return read_outcome(std::min<std::uint64_t>(got->bytes(), a.number()), got->object_size(), got->etag());
    }
    co_return got;
  }

  static asio::awaitable<result<put_outcome>> put_in(S inner, state_ptr s, std::string key, const_buffers body, put_condition condition) {
    const action a = fault_plan::begin(*s, op::put, key);
    co_await wait(s, a.delay());
    if (a.what() == kind::crash_before) throw crashed();
    if (stops_before(a.what())) co_return broken(a, op::put, key);
    if (a.what() == kind::condition_fails) co_return put_outcome::condition_failed();
    if (a.what() == kind::apply_later) {
      fault_plan::held_put h;
      h.key = key;
      for (const const_bytes piece : body) h.body.insert(h.body.end(), piece.begin(), piece.end());
      h.condition = condition;
      const std::lock_guard lock(s->mutex);
      s->held.push_back(std::move(h));
      co_return broken(a, op::put, key);
    }
    if (a.what() == kind::ignore_condition) condition = put_condition();
    result<put_outcome> put = co_await inner.put(key, body, condition);
    if (a.what() == kind::crash_after) throw crashed();
    if (a.what() == kind::apply_then_fail) co_return broken(a, op::put, key);
    co_return put;
  }

  static asio::awaitable<result<std::optional<object_info>>> head_in(S inner, state_ptr s, std::string key) {
    const action a = fault_plan::begin(*s, op::head, key);
    co_await wait(s, a.delay());
    if (a.what() == kind::crash_before) throw crashed();
    if (stops_before(a.what())) co_return broken(a, op::head, key);
    result<std::optional<object_info>> got = co_await inner.head(key);
    if (a.what() == kind::crash_after) throw crashed();
    if (a.what() == kind::apply_then_fail) co_return broken(a, op::head, key);
    co_return got;
  }

  static asio::awaitable<result<list_page>> list_in(S inner, state_ptr s, std::string prefix, std::string after, std::size_t max) {
    const action a = fault_plan::begin(*s, op::list, prefix);
    co_await wait(s, a.delay());
    if (a.what() == kind::crash_before) throw crashed();
    if (stops_before(a.what())) co_return broken(a, op::list, prefix);
    result<list_page> got = co_await inner.list(prefix, after, max);
    if (a.what() == kind::crash_after) throw crashed();
    if (a.what() == kind::apply_then_fail) co_return broken(a, op::list, prefix);
    co_return got;
  }

  static asio::awaitable<result<std::vector<remove_failure>>> remove_in(S inner, state_ptr s, std::vector<std::string> keys) {
    const std::string first = keys.empty() ? std::string() : keys.front();
    const action a = fault_plan::begin(*s, op::remove, first);
    co_await wait(s, a.delay());
    if (a.what() == kind::crash_before) throw crashed();
    if (stops_before(a.what())) co_return broken(a, op::remove, first);
    result<std::vector<remove_failure>> got = co_await inner.remove(keys);
    if (a.what() == kind::crash_after) throw crashed();
    if (a.what() == kind::apply_then_fail) co_return broken(a, op::remove, first);
    co_return got;
  }

  static asio::awaitable<std::size_t> release_in(S inner, state_ptr s) {
    std::vector<fault_plan::held_put> held;
    {
      const std::lock_guard lock(s->mutex);
      held.swap(s->held);
    }
    std::size_t applied = 0;
    for (auto& h : held) {
      const const_buffers body{const_bytes(h.body)};
      result<put_outcome> put = co_await inner.put(h.key, body, h.condition);
      if (put && put->applied()) ++applied;
    }
    co_return applied;
  }

  S inner_;
  fault_plan plan_;
};

}  // namespace batchweave::testing
