// Attempts of one operation until success, a final refusal or the end of patience: the one place that decides about retries.
#pragma once

#include <batchweave/s3/attempt.hpp>
#include <batchweave/s3/error_map.hpp>
#include <batchweave/s3/hedge.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::s3::detail {

/// "Sun, 06 Nov 1994 08:49:37 GMT"
inline std::optional<wall_time> parse_http_date(std::string_view s) {
  static constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (s.size() < 29) return std::nullopt;
  const auto number = [&s](std::size_t at, std::size_t n) { return content_range::number(s.substr(at, n)); };
  const auto day = number(5, 2), year = number(12, 4), hour = number(17, 2), minute = number(20, 2), second = number(23, 2);
  const std::size_t month = months.find(s.substr(8, 3));
  if (!day || !year || !hour || !minute || !second || month == std::string_view::npos || month % 3) return std::nullopt;
  if (*year < 1970 || *year > 2200 || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;  // a wall_time ends in 2262
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)), std::chrono::month(static_cast<unsigned>(month / 3 + 1)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return wall_time(std::chrono::sys_days(date) + std::chrono::hours(*hour) + std::chrono::minutes(*minute) + std::chrono::seconds(*second));
}

inline bool learn_clock(client_state& s, operation& op, const error_body& e) {
  if (op.head.status != 403 || op.clock_learned || op.head.find("age")) return false;
  const auto theirs = parse_http_date(op.head.find("date").value_or(""));
  if (!theirs || !(e.code == "RequestTimeTooSkewed" || e.code.empty())) return false;
  const auto ahead = std::chrono::duration_cast<std::chrono::seconds>(*theirs - s.config.clock().wall_now());
  const auto used = std::chrono::seconds(s.offset.load());
  if (ahead - used <= std::chrono::minutes(4) && used - ahead <= std::chrono::minutes(4)) return false;
  s.offset.store(ahead.count());
  op.clock_learned = true;
  return true;
}

inline bool learn_region(client_state& s, operation& op, const error_body& e) {
  const int status = op.head.status;
  if (op.region_learned || (status != 400 && status != 403 && status != 301 && status != 307)) return false;
  std::string region = e.region;
  if (region.empty()) region = std::string(op.head.find("x-amz-bucket-region").value_or(""));
  if (region.empty()) return false;
  const std::lock_guard lock(s.mutex);
  if (region == s.region) return false;
  s.region = region;
  if (s.config.on_aws()) {
    const auto at = s.config.endpoint_for(region);
    if (at) s.at = *at;
  }
  op.region_learned = true;
  op.redirected.reset();
  return true;
}

inline bool follow(client_state& s, operation& op) {
  const int status = op.head.status;
  if ((status != 307 && status != 301 && status != 308 && status != 302) || op.hops >= 3) return false;
  const std::string location(op.head.find("location").value_or(""));
  const std::size_t scheme = location.find("://");
  if (scheme == std::string::npos) return false;
  const std::size_t slash = location.find('/', scheme + 3);
  const auto to = endpoint::parse(location.substr(0, slash));
  if (!to || slash == std::string::npos) return false;
  endpoint from;
  {
    const std::lock_guard lock(s.mutex);
    from = s.at;
  }
  if (!may_follow(from, *to)) return false;
  ++op.hops;
  op.redirected = *to;
  std::string path = location.substr(slash);
  op.redirected_path = path.substr(0, path.find('?'));
  return true;
}

/// Stores that do not know the checksum header get the signed hash instead, from now on.
inline bool learn_checksum(client_state& s, operation& op) {
  if (op.head.status != 501) return false;
  const auto& headers = op.what.headers();
  const bool sent = std::any_of(headers.begin(), headers.end(), [](const auto& h) { return h.first == "x-amz-checksum-crc32c"; });
  if (!sent) return false;
  s.no_crc32c.store(true);
  protect(s, op);
  return true;
}

inline bool has_if_match(const operation& op) {
  const auto& headers = op.what.headers();
  return std::any_of(headers.begin(), headers.end(), [](const auto& h) { return h.first == "if-match"; });
}

/// Ceph 16 compares If-Match of a PUT with the etag without its quotes. Only a store that has never honoured the quoted form is asked again.
inline bool learn_quotes(client_state& s, operation& op) {
  if (op.head.status != 412 || op.what.method() != "PUT" || op.unquoted || s.quoted_etags || s.bare_etags) return false;
  for (const auto& [name, value] : op.what.headers()) {
    if (name != "if-match" || value.size() < 3 || value.front() != '"' || value.back() != '"') continue;
    std::string bare = value.substr(1, value.size() - 2);
    op.what.header("if-match", std::move(bare));
    op.unquoted = true;
    return true;
  }
  return false;
}

/// Learns from a refusal what makes the next attempt right. True: try again at once.
inline bool learn(client_state& s, operation& op, const error_body& e) {
  return learn_clock(s, op, e) || learn_region(s, op, e) || follow(s, op) || learn_checksum(s, op);
}

inline failure refusal(const client_state& s, const operation& op, const error_body& e, const verdict& v) {
  std::string text = std::to_string(op.head.status);
  if (!e.code.empty()) text += " " + e.code;
  if (!e.message.empty()) text += ": " + e.message;
  if (op.head.status >= 300 && op.head.status < 400) {
    text += ": a redirect that is not followed, to \"" + std::string(op.head.find("location").value_or("nowhere")) + "\"; fix the endpoint";
  }
  if (v.code() == errc::clock_skewed) {
    const auto took = std::chrono::duration_cast<std::chrono::seconds>(s.config.clock().now() - op.sent);
    if (took > std::chrono::minutes(5)) {
      text += "; the request took " + std::to_string(took.count()) + " s to send, which is longer than a signature lives: make part_size smaller";
    } else {
      text += "; fix the clock of this host";
    }
  }
  if (v.code() == errc::access_denied && op.signed_with && !op.signed_with->source().empty()) text += "; the keys came from " + op.signed_with->source();
  std::string id(op.head.find("x-amz-request-id").value_or(""));
  if (!id.empty()) text += " (request " + id + ")";
  return failure(v.code(), std::move(text)).with_status(op.head.status).with_request_id(std::move(id)).with_server_code(e.code);
}

/// Whether the keys may be what was refused: others are then fetched once.
inline bool keys_expired(const operation& op, const error_body& e) {
  if (op.renewed) return false;
  if (e.code == "ExpiredToken" || e.code == "ExpiredTokenException" || e.code == "TokenRefreshRequired" || e.code == "InvalidToken") return true;
  // The answer to HEAD has no body that would say so.
  return op.what.method() == "HEAD" && op.text.empty() && op.head.status == 400 && op.signed_with && op.signed_with->expires();
}

/// Attempts until success, a final refusal, or the end of patience. nullopt: an answer below 300 is in `op`, or one of `accept`.
inline asio::awaitable<optional_failure> perform(std::shared_ptr<client_state> s, operation& op, std::vector<int> accept) {
  if (s->problem) co_return in_context(*s->problem, op.describe(*s));
  const retry_policy& policy = s->config.retry();
  const time_point give_up = op.started + policy.total();
  any_clock clock = s->config.clock();
  optional_failure last;  // why the attempt before failed
  for (unsigned n = 1;;) {
    attempt how;
    optional_failure bad;
    if (op.straight && s->config.hedge_share() > 0) bad = co_await send_hedged(s, op, how);
    else bad = co_await send_once(s, op, how);
    std::optional<verdict> v;
    if (bad) {
      if (bad->code() == errc::object_changed) co_return bad->in(op.describe(*s));
      v = classify_transport(bad->code(), how.started);
      if (op.writes && how.started) op.sticky = *bad;
      if (how.stale && !op.replayed) {
        // The store closed it while it was idle. Bytes are sent again as they were, at once and at no cost.
        op.replayed = true;
        s->connections.close_idle();
        continue;
      }
    } else {
      const int status = op.head.status;
      if (status >= 200 && status < 300) {
        if (op.unquoted) s->bare_etags.store(true);
        else if (op.what.method() == "PUT" && !s->quoted_etags && has_if_match(op)) s->quoted_etags.store(true);
        s->succeeded();
        co_return std::nullopt;
      }
      const error_body e = parse_error(op.text).value_or(error_body());
      op.code = e.code;
      if (status == 412 && learn_quotes(*s, op)) continue;
      // A 404 counts as absence only from the store itself: a proxy's page or "no such user" says nothing about the key.
      const bool absent = op.text.empty() || e.code == "NoSuchKey" || e.code == "NoSuchUpload" || e.code == "NotFound";
      if (std::find(accept.begin(), accept.end(), status) != accept.end() && (status != 404 || absent)) {
        s->succeeded();
        co_return std::nullopt;
      }
      v = classify_answer(status, e.code);
      if (learn(*s, op, e)) continue;
      if (s->keys.renewable() && keys_expired(op, e)) {
        op.renewed = true;
        const credential_cache::keys used = op.signed_with;
        result<credential_cache::keys> other = co_await s->keys.renew(used, op.overall);
        if (other && !(*other)->same_keys(*used)) continue;
      }
      if (op.what.method() == "HEAD" && (status == 400 || status == 409) && !op.doubted) {
        // Without a body nobody says whether this is RequestTimeout or for ever: one more try tells.
        op.doubted = true;
        v = verdict(v->code(), v->fate(), true, v->poisons());
      }
      if (v->code() == errc::throttled || (status == 503 && e.code.empty())) s->slow_down();
      bad = refusal(*s, op, e, *v);
      if (op.writes && v->fate() == fate::unknown) op.sticky = *bad;
    }
    bad->with_fate(op.writes && op.sticky ? fate::unknown : v->fate());
    if (last && bad->code() == errc::overall_timeout) {
      // What the store answered says more than that the time was over during the next try.
      last->with_fate(bad->fate());
      co_return last->in(op.describe(*s) + ": gave up during attempt " + std::to_string(n) + ", when the time for the operation was over");
    }
    const std::string tries = n == 1 ? std::string() : " (attempt " + std::to_string(n) + ")";
    if (!v->retryable()) co_return bad->in(op.describe(*s) + tries);
    const duration wait = s->jitter(n);
    if (n >= policy.attempts() || clock.now() + wait > give_up || real_clock().now() + wait > op.overall) {
      co_return bad->in(op.describe(*s) + ": gave up after " + std::to_string(n) + " attempts");
    }
    if (!s->may_retry()) {
      co_return bad->in(op.describe(*s) + ": gave up after " + std::to_string(n) + " attempts, because the retries of this client are used up for now");
    }
    co_await clock.wait_for(wait);
    last = std::move(bad);
    ++n;
    s->retries.fetch_add(1);
    op.replayed = false;
  }
}

}  // namespace batchweave::s3::detail
