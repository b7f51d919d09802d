// How the test S3 server misbehaves: rules that match requests and say what happens instead.
#pragma once

#include <batchweave/aio/event.hpp>
#include <batchweave/testing/s3_request.hpp>

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>

namespace batchweave::testing {

namespace detail {

/// What is to happen to one request; the actions of every matching rule, put together.
class s3_plan {
 public:
  enum class fate { answer, drop, drop_after_apply, answer_early, never_read, hold };
  fate what = fate::answer;
  std::optional<s3_reply> instead;       // this answer, nothing applied
  std::optional<s3_reply> after_apply;   // applied, then this answer
  std::optional<async_event> held_by;    // what a hold waits for
  std::function<bool()> released;
  std::function<void()> on_hold;
  std::chrono::milliseconds latency{0};
  std::optional<std::chrono::milliseconds> check_then_write;
  std::vector<std::string> ignored;
  std::vector<int> informational;
  s3_request::fields extra_headers;
  bool say_continue = true;
  bool chunked = false;
  bool close_after = false;
  bool no_length = false;
  bool reset = false;
  bool rude = false;
  std::optional<std::uint64_t> stall_after, cut_after, flip_at, announced;
  bool stall_head = false;
  std::size_t drip = 0;
  std::chrono::milliseconds drip_pause{0};
};

class s3_rule_state {
 public:
  std::string operation, prefix;
  std::optional<std::string> exact, needs_header;
  std::string strip;
  unsigned from = 1, count = std::numeric_limits<unsigned>::max();
  unsigned seen = 0, acted = 0, held = 0;
  bool released = false, removed = false;
  async_event release;
  std::vector<std::function<void(s3_plan&)>> actions;

  bool matches(const s3_request& q) const {
    if (removed || (operation != "*" && operation != q.operation())) return false;
    if (exact ? q.key() != *exact : !q.key().starts_with(prefix)) return false;
    return !needs_header || q.header(*needs_header);
  }
};

class s3_script_state {
 public:
  std::mutex mutex;
  async_event changed;  // a request was recorded, a hold began, the server stops
  std::vector<std::shared_ptr<s3_rule_state>> rules;
};

}  // namespace detail

/// One rule of the script: which requests (`nth`, `times`, ... count the requests that match) and what happens to them. Several
/// rules may match one request; their actions add up, a later rule wins where they contradict. A rule without an action does
/// nothing but count. Copies refer to the same rule. Thread safe.
class s3_rule {
 public:
  s3_rule(std::shared_ptr<detail::s3_script_state> script, std::shared_ptr<detail::s3_rule_state> rule)
      : script_(std::move(script)), rule_(std::move(rule)) {}

  // ---- which requests ----
  /// Only the n-th match, counted from 1.
  s3_rule& nth(unsigned n) { return set([n](auto& r) { r.from = n; r.count = 1; }); }
  /// Only the first n matches.
  s3_rule& times(unsigned n) { return set([n](auto& r) { r.count = n; }); }
  /// From the n-th match on.
  s3_rule& from(unsigned n) { return set([n](auto& r) { r.from = n; }); }
  /// Only requests for exactly this key.
  s3_rule& key(std::string k) { return set([k = std::move(k)](auto& r) { r.exact = k; }); }
  /// Only requests that carry this header (lower case).
  s3_rule& with_header(std::string name) { return set([n = std::move(name)](auto& r) { r.needs_header = n; }); }

  // ---- the request does not happen ----
  /// This answer instead, with S3's error body (no body for HEAD). The request is read, nothing is applied.
  s3_rule& reply(int status, std::string code = "InternalError", std::string message = "scripted") {
    return reply_with(detail::s3_error(status, code, message));
  }
  /// Exactly this answer instead.
  s3_rule& reply_with(s3_reply r) { return act([r = std::move(r)](auto& p) { p.instead = r; }); }
  /// 3xx with a Location.
  s3_rule& redirect(int status, std::string location) {
    s3_reply r = detail::s3_error(status, "TemporaryRedirect", "Please re-send this request to the specified endpoint.");
    r.header("Location", std::move(location));
    return reply_with(std::move(r));
  }
  /// Answers before the body was read and closes: the client sees a reset while the answer waits for it.
  s3_rule& early_reply(int status, std::string code) {
    s3_reply r = detail::s3_error(status, code, "scripted, before the body was read");
    return act([r = std::move(r)](auto& p) { p.what = plan::fate::answer_early; p.instead = r; });
  }
  /// Reads the request, applies nothing, closes without an answer.
  s3_rule& drop() { return act([](auto& p) { p.what = plan::fate::drop; }); }
  /// Reads the head of the request and then nothing: a body that is never taken, a network that swallows.
  s3_rule& never_read() { return act([](auto& p) { p.what = plan::fate::never_read; }); }

  // ---- the request happens, the client does not hear it ----
  /// Applies, then closes without an answer.
  s3_rule& apply_then_drop() { return act([](auto& p) { p.what = plan::fate::drop_after_apply; }); }
  /// Applies, then answers with an error.
  s3_rule& apply_then_reply(int status, std::string code = "InternalError") {
    s3_reply r = detail::s3_error(status, code, "scripted, but applied");
    return act([r = std::move(r)](auto& p) { p.after_apply = r; });
  }
  /// Reads the request and applies it only after release(): a write that lands late.
  s3_rule& apply_late() {
    auto rule = rule_;
    auto script = script_;
    return act([weak = std::weak_ptr<detail::s3_rule_state>(rule), weak_script = std::weak_ptr<detail::s3_script_state>(script)](auto& p) {
      const auto r = weak.lock();
      if (!r) return;
      p.what = plan::fate::hold;
      p.held_by = r->release;
      p.released = [r] { return r->released; };
      p.on_hold = [r] { ++r->held; };
    });
  }
  /// Applies what apply_late() holds now, and later matches at once.
  void release() {
    async_event event;
    {
      const std::lock_guard lock(script_->mutex);
      rule_->released = true;
      event = rule_->release;
    }
    event.notify();
  }

  // ---- the request happens differently ----
  /// The store does not know this header (lower case); the signature is still checked with it.
  s3_rule& ignore_header(std::string name) { return act([n = std::move(name)](auto& p) { p.ignored.push_back(n); }); }
  /// A proxy removes this header (lower case) before the store sees and checks the request.
  s3_rule& strip_header(std::string name) { return set([n = std::move(name)](auto& r) { r.strip = n; }); }
  /// Checks the condition of a write, waits, then writes without looking again: several racers win.
  s3_rule& check_then_write(std::chrono::milliseconds pause) { return act([pause](auto& p) { p.check_then_write = pause; }); }
  /// Waits before it does anything.
  s3_rule& latency(std::chrono::milliseconds t) { return act([t](auto& p) { p.latency = t; }); }
  /// Never answers `Expect: 100-continue` with 100.
  s3_rule& no_continue() { return act([](auto& p) { p.say_continue = false; }); }

  // ---- the answer is damaged ----
  /// Sends this 1xx head first. Repeat for several.
  s3_rule& informational(int status) { return act([status](auto& p) { p.informational.push_back(status); }); }
  /// Adds or replaces a header of the answer.
  s3_rule& header(std::string name, std::string value) {
    return act([n = std::move(name), v = std::move(value)](auto& p) { p.extra_headers.emplace_back(n, v); });
  }
  /// Closes after n bytes of the answer's body.
  s3_rule& cut_body_after(std::uint64_t n) { return act([n](auto& p) { p.cut_after = n; }); }
  /// Resets the connection after n bytes of the answer's body.
  s3_rule& reset_body_after(std::uint64_t n) { return act([n](auto& p) { p.cut_after = n; p.reset = true; }); }
  /// Sends n bytes of the answer's body, then nothing more; the connection stays open.
  s3_rule& stall_body_after(std::uint64_t n) { return act([n](auto& p) { p.stall_after = n; }); }
  /// Does the request and never answers; the connection stays open.
  s3_rule& stall_before_reply() { return act([](auto& p) { p.stall_head = true; }); }
  /// Flips one bit of byte n of the answer's body.
  s3_rule& flip_byte(std::uint64_t n) { return act([n](auto& p) { p.flip_at = n; }); }
  /// Announces another Content-Length than the body has.
  s3_rule& content_length(std::uint64_t n) { return act([n](auto& p) { p.announced = n; }); }
  /// Sends the body with Transfer-Encoding: chunked.
  s3_rule& chunked() { return act([](auto& p) { p.chunked = true; }); }
  /// Sends neither Content-Length nor chunks: the body ends when the connection closes.
  s3_rule& until_close() { return act([](auto& p) { p.no_length = true; }); }
  /// Sends the body in pieces with pauses: slow but alive.
  s3_rule& drip(std::size_t piece, std::chrono::milliseconds pause) {
    return act([piece, pause](auto& p) { p.drip = piece ? piece : 1; p.drip_pause = pause; });
  }
  /// Closes after the answer without having said so.
  s3_rule& close_after_reply() { return act([](auto& p) { p.close_after = true; }); }

  /// TLS: closes without close_notify, as a network that breaks; cuts and resets do so anyway.
  s3_rule& no_close_notify() { return act([](auto& p) { p.rude = true; }); }

  // ---- what came of it ----
  /// Requests that matched, whether the rule acted or not.
  unsigned seen() const { return get([](auto& r) { return r.seen; }); }
  /// Requests the rule acted on.
  unsigned acted() const { return get([](auto& r) { return r.acted; }); }
  /// Requests that apply_late() has held.
  unsigned held() const { return get([](auto& r) { return r.held; }); }
  /// Waits until apply_late() has held n requests.
  asio::awaitable<void> until_held(unsigned n) { return wait_held(script_, rule_, n); }
  /// The rule no longer matches anything.
  void remove() { set([](auto& r) { r.removed = true; }); }

 private:
  using plan = detail::s3_plan;

  static asio::awaitable<void> wait_held(std::shared_ptr<detail::s3_script_state> script, std::shared_ptr<detail::s3_rule_state> rule,
                                         unsigned n) {
    for (;;) {
      const async_event::ticket seen = script->changed.observe();
      {
        const std::lock_guard lock(script->mutex);
        if (rule->held >= n) co_return;
      }
      co_await script->changed.wait(seen);
    }
  }

  template <class F>
  s3_rule& set(F f) {
    const std::lock_guard lock(script_->mutex);
    f(*rule_);
    return *this;
  }
  template <class F>
  s3_rule& act(F f) {
    return set([&f](auto& r) { r.actions.push_back(std::move(f)); });
  }
  template <class F>
  unsigned get(F f) const {
    const std::lock_guard lock(script_->mutex);
    return f(*rule_);
  }

  std::shared_ptr<detail::s3_script_state> script_;
  std::shared_ptr<detail::s3_rule_state> rule_;
};

}  // namespace batchweave::testing
