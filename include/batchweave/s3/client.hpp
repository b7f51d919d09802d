// S3 operations over pooled connections: each attempt is signed afresh, every failure is mapped by one table, retries are bounded.
#pragma once

#include <batchweave/aio/task_group.hpp>
#include <batchweave/base/checksum.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/base/random.hpp>
#include <batchweave/base/retry.hpp>
#include <batchweave/http/exchange.hpp>
#include <batchweave/http/pool.hpp>
#include <batchweave/s3/config.hpp>
#include <batchweave/s3/error_map.hpp>
#include <batchweave/s3/request.hpp>
#include <batchweave/s3/response.hpp>
#include <batchweave/s3/xml.hpp>

#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace batchweave::s3 {

/// The condition of a PUT: none, absent, or an etag.
class condition {
 public:
  condition() = default;
  bool if_absent = false;
  std::optional<std::string> if_match;
};

namespace detail {
/// "Sun, 06 Nov 1994 08:49:37 GMT"
inline std::optional<wall_time> parse_http_date(std::string_view s) {
  static constexpr std::string_view months = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (s.size() < 29) return std::nullopt;
  const auto number = [&s](std::size_t at, std::size_t n) { return content_range::number(s.substr(at, n)); };
  const auto day = number(5, 2), year = number(12, 4), hour = number(17, 2), minute = number(20, 2), second = number(23, 2);
  const std::size_t month = months.find(s.substr(8, 3));
  if (!day || !year || !hour || !minute || !second || month == std::string_view::npos || month % 3) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)), std::chrono::month(static_cast<unsigned>(month / 3 + 1)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return wall_time(std::chrono::sys_days(date) + std::chrono::hours(*hour) + std::chrono::minutes(*minute) + std::chrono::seconds(*second));
}
}  // namespace detail

/// Operations on one bucket with full keys. A copyable handle; copies share connections, credentials, the learned region and clock
/// offset. Thread safe, as long as each operation runs on a strand or in a single-threaded context.
/// Cancelling an operation throws system_error(operation_aborted); its connection is closed; a write then has an unknown fate.
class client {
  struct state;

 public:
  client(asio::any_io_executor executor, s3_config config) : state_(std::make_shared<state>(std::move(executor), std::move(config))) {}

  const s3_config& config() const noexcept { return state_->config; }

  /// GET of [offset, offset + length) into `into`, which has room for `length` bytes.
  asio::awaitable<result<read_result>> get(std::string key, std::uint64_t offset, std::uint64_t length, mutable_buffers into) {
    return get_from(state_, std::move(key), offset, length, std::move(into));
  }
  /// PUT of all pieces as one object, in one request unless it is unconditional and large.
  asio::awaitable<result<put_result>> put(std::string key, const_buffers body, condition when) {
    const bool parts = !when.if_absent && !when.if_match && total_size(body) > state_->config.multipart_threshold();
    if (parts) return put_parts(state_, std::move(key), std::move(body));
    return put_whole(state_, std::move(key), std::move(body), std::move(when));
  }
  asio::awaitable<result<std::optional<listed_object>>> head(std::string key) { return head_of(state_, std::move(key)); }
  /// At most `max` (<= 1000) keys that start with `prefix` and come after `after`.
  asio::awaitable<result<list_result>> list(std::string prefix, std::string after, std::size_t max) {
    return list_of(state_, std::move(prefix), std::move(after), max);
  }
  /// Keys that could not be removed.
  asio::awaitable<result<std::vector<std::pair<std::string, failure>>>> remove(std::vector<std::string> keys) {
    return remove_all(state_, std::move(keys));
  }
  /// Makes the bucket; no error when it is there already and ours.
  asio::awaitable<std::optional<failure>> create_bucket() { return make_bucket(state_); }

  /// Retries so far, connections opened, clock offset learned: for tests and metrics.
  std::uint64_t retries() const noexcept { return state_->retries.load(); }
  std::uint64_t connections() const { return state_->connections.opened(); }
  std::chrono::seconds clock_offset() const noexcept { return std::chrono::seconds(state_->offset.load()); }
  /// Aborts of multipart uploads that failed: a lifecycle rule must clean up.
  std::uint64_t failed_aborts() const noexcept { return state_->failed_aborts.load(); }

 private:
  using optional_failure = std::optional<failure>;

  struct state {
    state(asio::any_io_executor e, s3_config c)
        : executor(std::move(e)), config(std::move(c)), connections(config.max_connections(), config.idle_limit()),
          random(config.seed() ? random64(*config.seed()) : random64()) {
      config.fill_from(process_environment());
      problem = config.problem();
      if (!problem && config.credentials().empty()) problem = config.credentials_problem();
      region = config.region();
      if (problem) return;
      at = *config.resolved_endpoint();
      secure = at.tls();
      if (at.tls()) {
        auto context = http::make_tls_context(config.ca_file());
        if (context) tls = *context;
        else problem = context.error();
      }
    }
    asio::any_io_executor executor;
    s3_config config;
    http::pool connections;
    http::name_cache names;
    std::shared_ptr<asio::ssl::context> tls;
    signer sign;
    optional_failure problem;
    bool secure = false;
    std::atomic<std::int64_t> offset{0};  // seconds that the store's clock is ahead
    std::atomic<std::uint64_t> retries{0}, failed_aborts{0};
    std::mutex mutex;  // guards what follows
    random64 random;
    std::string region;
    endpoint at;

    duration jitter(unsigned attempt) {
      const std::lock_guard lock(mutex);
      return config.retry().delay(attempt, random);
    }
  };

  /// One operation over all its attempts.
  class operation {
   public:
    operation(state& s, std::string verb_, request r, bool writes_)
        : verb(std::move(verb_)), what(std::move(r)), writes(writes_), started(s.config.clock().now()) {
      const duration limit = s.config.timeouts().overall;
      // Sockets wait in real time, whatever clock the retries use.
      if (limit > duration::zero()) overall = real_clock().now() + limit;
    }
    std::string verb;
    request what;
    bool writes;
    const_buffers body;
    // Where the bytes of a 200 or 206 go; unused unless `straight`.
    bool straight = false;
    mutable_buffers into;
    std::uint64_t offset = 0, length = 0, received = 0, object_size = 0;
    std::string etag;
    std::string range_error;
    bool satisfiable = true;

    http::response_head head;
    std::string text;
    std::string code;
    optional_failure sticky;  // an earlier attempt whose effect is not known
    bool replayed = false, doubted = false, clock_learned = false, region_learned = false;
    unsigned hops = 0;
    std::optional<endpoint> redirected;
    std::string redirected_path;
    time_point started;
    time_point overall = time_point::max();
  };

  static std::string describe(const state& s, const operation& op) {
    std::string r = op.verb + " s3://" + s.config.bucket();
    if (!op.what.key().empty()) r += "/" + op.what.key();
    return r;
  }

  static mutable_buffers rest_of(const mutable_buffers& all, std::uint64_t skip) {
    mutable_buffers r;
    for (const auto& b : all) {
      if (skip >= b.size()) {
        skip -= b.size();
        continue;
      }
      r.push_back(b.subspan(static_cast<std::size_t>(skip)));
      skip = 0;
    }
    return r;
  }

  /// Sends once on one connection and reads the whole answer into `op`. `stale`: the connection was an idle one and gave nothing.
  static asio::awaitable<optional_failure> send_once(std::shared_ptr<state> s, operation& op, bool& stale, bool& started) {
    stale = started = false;
    endpoint at;
    std::string region;
    {
      const std::lock_guard lock(s->mutex);
      at = op.redirected ? *op.redirected : s->at;
      region = s->region;
    }
    const std::string& bucket = s->config.bucket();
    std::string path;
    if (op.redirected) {
      path = op.redirected_path;
    } else if (use_virtual_host(at, bucket, s->config.style(), s->config.on_aws())) {
      at = at.with_label(bucket);
      path = "/" + uri_encode(op.what.key(), true);
    } else {
      path = "/" + uri_encode(bucket, false) + (op.what.key().empty() ? std::string() : "/" + uri_encode(op.what.key(), true));
    }
    http::target to(at.tls(), at.host(), at.port(), at.is_address());
    http::pool::lease place = co_await s->connections.acquire(to);
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    if (!place.get()) {
      auto fresh = std::make_unique<http::connection>(s->executor, to);
      optional_failure bad = co_await http::connect(*fresh, s->names, s->tls, s->config.timeouts(), op.overall);
      if (bad) co_return bad;
      place.put(std::move(fresh));
    }
    http::connection& line = *place.get();

    if (op.straight) {
      op.what.remove_header("range").remove_header("if-match");
      if (op.length > 0) {
        op.what.header("range", "bytes=" + std::to_string(op.offset + op.received) + "-" + std::to_string(op.offset + op.length - 1));
      }
      if (op.received > 0 && !op.etag.empty()) op.what.header("if-match", op.etag);
    }
    const std::string date = amz_date(s->config.clock().wall_now() + std::chrono::seconds(s->offset.load()));
    std::string head = op.what.sign(s->sign, s->config.credentials(), region, date, at.authority(), path, total_size(op.body));
    http::exchange exchange(executor, line, s->config.timeouts(), op.overall);
    const bool no_body = op.what.method() == "HEAD";
    op.text.clear();
    op.code.clear();
    const_buffers pieces = op.body;
    optional_failure bad = co_await exchange.request(std::move(head), std::move(pieces), no_body);
    started = exchange.started();
    if (bad) {
      stale = line.used() && !exchange.answered() && bad->code() == errc::connection_lost;
      co_return bad;
    }
    op.head = exchange.head();
    if (no_body || op.head.status == 204 || op.head.status == 304) {
      exchange.finish();
      co_return std::nullopt;
    }
    if (op.straight && (op.head.status == 200 || op.head.status == 206)) {
      bad = check_range(op);
      if (bad) co_return bad;
      const std::uint64_t want = op.object_size <= op.offset ? 0 : std::min(op.length, op.object_size - op.offset) - op.received;
      if (op.head.content_length) {
        if (*op.head.content_length != want) {
          co_return failure(errc::bad_response, "Content-Length is " + std::to_string(*op.head.content_length) + ", " + std::to_string(want) + " bytes are due");
        }
        mutable_buffers to_fill = rest_of(op.into, op.received);
        bad = co_await exchange.read_into(std::move(to_fill), op.received);
        if (bad) co_return bad;
      } else {
        std::string whole;
        bad = co_await exchange.read_text(whole, static_cast<std::size_t>(want) + 1);
        if (bad) co_return bad;
        if (whole.size() != want) co_return failure(errc::body_truncated, std::to_string(whole.size()) + " bytes came, " + std::to_string(want) + " are due");
        const_bytes left = as_bytes(whole);
        for (const auto& b : rest_of(op.into, op.received)) {
          const std::size_t n = std::min(b.size(), left.size());
          if (n) std::memcpy(b.data(), left.data(), n);
          left = left.subspan(n);
        }
        op.received += want;
      }
      exchange.finish();
      co_return std::nullopt;
    }
    bad = co_await exchange.read_text(op.text, text_limit);
    if (bad) {
      // A refusal whose body is lost is still a refusal.
      if (op.head.status >= 300) {
        op.text.clear();
        co_return std::nullopt;
      }
      co_return bad;
    }
    exchange.finish();
    co_return std::nullopt;
  }

  /// What a 200 or 206 says about the object, checked against what was asked for.
  static optional_failure check_range(operation& op) {
    const std::string etag(op.head.find("etag").value_or(""));
    const std::uint64_t from = op.offset + op.received;
    std::uint64_t size = 0;
    if (op.head.status == 206) {
      const auto range = content_range::parse(op.head.find("content-range").value_or(""));
      if (!range || !range->satisfied) return failure(errc::bad_response, "206 without a usable Content-Range");
      if (range->first != from || range->last >= op.offset + op.length) {
        return failure(errc::bad_response, "another range than the one asked for: bytes " + std::to_string(range->first) + "-" + std::to_string(range->last));
      }
      if (range->last + 1 != std::min(op.offset + op.length, range->size)) return failure(errc::bad_response, "fewer bytes than the object has in the range");
      size = range->size;
    } else {
      // The whole object although a part was asked for: fine when that is the same.
      if (from != 0) return failure(errc::bad_response, "the store ignored the Range header");
      if (op.head.content_length && *op.head.content_length > op.length) return failure(errc::bad_response, "the store ignored the Range header");
      if (!op.head.content_length) return failure(errc::bad_response, "200 without Content-Length");
      size = *op.head.content_length;
    }
    if (op.received > 0 && ((!op.etag.empty() && etag != op.etag) || size != op.object_size)) {
      return failure(errc::object_changed, "the object changed while it was read");
    }
    op.etag = etag;
    op.object_size = size;
    return std::nullopt;
  }

  /// Learns from a refusal what makes the next attempt right. True: try again at once.
  static bool learn(state& s, operation& op, const error_body& e) {
    const int status = op.head.status;
    if (status == 403 && !op.clock_learned && !op.head.find("age")) {
      const auto theirs = detail::parse_http_date(op.head.find("date").value_or(""));
      if (theirs) {
        const wall_time ours = s.config.clock().wall_now();
        const auto ahead = std::chrono::duration_cast<std::chrono::seconds>(*theirs - ours);
        const auto used = std::chrono::seconds(s.offset.load());
        const bool differs = ahead - used > std::chrono::minutes(4) || used - ahead > std::chrono::minutes(4);
        if (differs && (e.code == "RequestTimeTooSkewed" || e.code.empty())) {
          s.offset.store(ahead.count());
          op.clock_learned = true;
          return true;
        }
      }
    }
    std::string region = e.region;
    if (region.empty()) region = std::string(op.head.find("x-amz-bucket-region").value_or(""));
    if (!op.region_learned && !region.empty() && (status == 400 || status == 403 || status == 301 || status == 307)) {
      const std::lock_guard lock(s.mutex);
      if (region != s.region) {
        s.region = region;
        if (s.config.on_aws()) {
          const auto at = s.config.endpoint_for(region);
          if (at) s.at = *at;
        }
        op.region_learned = true;
        op.redirected.reset();
        return true;
      }
    }
    if ((status == 307 || status == 301 || status == 308 || status == 302) && op.hops < 3) {
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
    return false;
  }

  /// Attempts until success, a final refusal, or the end of patience. nullopt: an answer below 300 is in `op`, or one of `accept`.
  static asio::awaitable<optional_failure> perform(std::shared_ptr<state> s, operation& op, std::vector<int> accept) {
    if (s->problem) co_return in_context(*s->problem, describe(*s, op));
    const retry_policy& policy = s->config.retry();
    const time_point give_up = op.started + policy.total();
    any_clock clock = s->config.clock();
    for (unsigned n = 1;;) {
      bool stale = false, started = false;
      optional_failure bad = co_await send_once(s, op, stale, started);
      std::optional<verdict> v;
      if (bad) {
        if (bad->code() == errc::object_changed) co_return bad->in(describe(*s, op));
        v = classify_transport(bad->code(), started);
        if (op.writes && started) op.sticky = *bad;
        if (stale && !op.replayed) {
          // The store closed it while it was idle. Bytes are sent again as they were, at once and at no cost.
          op.replayed = true;
          s->connections.close_idle();
          continue;
        }
      } else {
        const int status = op.head.status;
        if (status >= 200 && status < 300) co_return std::nullopt;
        const error_body e = parse_error(op.text).value_or(error_body());
        op.code = e.code;
        // A 404 counts as absence only from the store itself: a proxy's page or "no such user" says nothing about the key.
        const bool absent = op.text.empty() || e.code == "NoSuchKey" || e.code == "NoSuchUpload" || e.code == "NotFound";
        if (std::find(accept.begin(), accept.end(), status) != accept.end() && (status != 404 || absent)) co_return std::nullopt;
        v = classify_answer(status, e.code);
        if (learn(*s, op, e)) continue;
        if (op.what.method() == "HEAD" && (status == 400 || status == 409) && !op.doubted) {
          // Without a body nobody says whether this is RequestTimeout or for ever: one more try tells.
          op.doubted = true;
          v = verdict(v->code(), v->fate(), true, v->poisons());
        }
        bad = refusal(op, e, *v);
        if (op.writes && v->fate() == fate::unknown) op.sticky = *bad;
      }
      bad->with_fate(op.writes && op.sticky ? fate::unknown : v->fate());
      const std::string tries = n == 1 ? std::string() : " (attempt " + std::to_string(n) + ")";
      if (!v->retryable()) co_return bad->in(describe(*s, op) + tries);
      const duration wait = s->jitter(n);
      if (n >= policy.attempts() || clock.now() + wait > give_up || real_clock().now() + wait > op.overall) {
        co_return bad->in(describe(*s, op) + ": gave up after " + std::to_string(n) + " attempts");
      }
      co_await clock.wait_for(wait);
      ++n;
      s->retries.fetch_add(1);
      op.replayed = false;
    }
  }

  static failure refusal(const operation& op, const error_body& e, const verdict& v) {
    std::string text = std::to_string(op.head.status);
    if (!e.code.empty()) text += " " + e.code;
    if (!e.message.empty()) text += ": " + e.message;
    if (op.head.status >= 300 && op.head.status < 400) {
      text += ": a redirect that is not followed, to \"" + std::string(op.head.find("location").value_or("nowhere")) + "\"; fix the endpoint";
    }
    if (v.code() == errc::clock_skewed) text += "; fix the clock of this host";
    std::string id(op.head.find("x-amz-request-id").value_or(""));
    if (!id.empty()) text += " (request " + id + ")";
    return failure(v.code(), std::move(text)).with_status(op.head.status).with_request_id(std::move(id)).with_server_code(e.code);
  }

  static asio::awaitable<result<read_result>> get_from(std::shared_ptr<state> s, std::string key, std::uint64_t offset, std::uint64_t length,
                                                       mutable_buffers into) {
    read_result r;
    if (length == 0) {
      result<std::optional<listed_object>> there = co_await head_of(s, std::move(key));
      if (!there) co_return there.error();
      if (*there) {
        r.found = true;
        r.object_size = (*there)->size;
        r.etag = (*there)->etag;
      }
      co_return r;
    }
    request q("GET", key);
    operation op(*s, "GET", std::move(q), false);
    op.straight = true;
    op.offset = offset;
    op.length = length;
    op.into = std::move(into);
    if (total_size(op.into) < length || offset + length < offset) {
      co_return failure(errc::invalid_argument, describe(*s, op) + ": the destination is smaller than the range").with_fate(fate::did_not_happen);
    }
    const std::vector<int> accept{404, 412, 416};
    optional_failure bad = co_await perform(s, op, accept);
    if (bad) co_return bad->in("bytes " + std::to_string(offset) + "-" + std::to_string(offset + length) + " (end excluded)");
    const int status = op.head.status;
    if (status == 404) {
      if (op.received > 0) co_return failure(errc::object_changed, describe(*s, op) + ": it was removed while it was read");
      co_return r;
    }
    if (status == 412 || (status == 416 && op.received > 0)) {
      co_return failure(errc::object_changed, describe(*s, op) + ": the object changed while it was read").with_status(status);
    }
    if (status == 416) {
      const auto range = content_range::parse(op.head.find("content-range").value_or(""));
      r.found = true;
      if (range) {
        r.object_size = range->size;
        r.etag = std::string(op.head.find("etag").value_or(""));
        co_return r;
      }
      result<std::optional<listed_object>> there = co_await head_of(s, std::move(key));
      if (!there) co_return there.error();
      r.found = there->has_value();
      if (*there) {
        r.object_size = (*there)->size;
        r.etag = (*there)->etag;
      }
      co_return r;
    }
    r.found = true;
    r.bytes = op.received;
    r.object_size = op.object_size;
    r.etag = op.etag;
    co_return r;
  }

  /// Puts the guarantee of its body on a request: a signed hash, or a checksum.
  static void protect(const state& s, operation& op) {
    const payload_signing how =
        s.config.signing().value_or(s.secure ? payload_signing::crc32c : payload_signing::signed_hash);
    const std::size_t size = total_size(op.body);
    if (size <= small_body || how == payload_signing::signed_hash) {
      op.what.payload_hash(sha256_hex(op.body));
      return;
    }
    crc32c sum;
    for (const auto& b : op.body) sum.update(b);
    op.what.payload_hash(std::string(unsigned_payload)).header("x-amz-checksum-crc32c", crc32c_base64(sum.value()));
  }

  static asio::awaitable<result<put_result>> put_whole(std::shared_ptr<state> s, std::string key, const_buffers body, condition when) {
    request q("PUT", std::move(key));
    if (when.if_absent) q.header("if-none-match", "*");
    if (when.if_match) q.header("if-match", *when.if_match);
    operation op(*s, "PUT", std::move(q), true);
    op.body = std::move(body);
    protect(*s, op);
    std::vector<int> accept;
    if (when.if_absent || when.if_match) accept.push_back(412);
    if (when.if_match) accept.push_back(404);
    optional_failure bad = co_await perform(s, op, accept);
    if (bad) co_return *bad;
    put_result r;
    if (op.head.status >= 300) co_return r;
    r.applied = true;
    r.etag = std::string(op.head.find("etag").value_or(""));
    co_return r;
  }

  static asio::awaitable<result<std::optional<listed_object>>> head_of(std::shared_ptr<state> s, std::string key) {
    request q("HEAD", key);
    operation op(*s, "HEAD", std::move(q), false);
    const std::vector<int> accept{404};
    optional_failure bad = co_await perform(s, op, accept);
    if (bad) {
      if (bad->status() == 403) bad->in("HEAD is refused; a missing key also looks like this when the credentials lack s3:ListBucket");
      co_return *bad;
    }
    if (op.head.status == 404) co_return std::optional<listed_object>();
    if (!op.head.content_length) co_return failure(errc::bad_response, describe(*s, op) + ": no Content-Length");
    listed_object found(std::move(key), *op.head.content_length, std::string(op.head.find("etag").value_or("")));
    co_return std::optional<listed_object>(std::move(found));
  }

  static asio::awaitable<result<list_result>> list_of(std::shared_ptr<state> s, std::string prefix, std::string after, std::size_t max) {
    std::string continuation;
    for (int pages = 0; pages < 100; ++pages) {
      request q("GET", std::string());
      q.query("list-type", "2").query("prefix", prefix).query("max-keys", std::to_string(std::clamp<std::size_t>(max, 1, 1000)));
      q.query("encoding-type", "url");
      if (!continuation.empty()) q.query("continuation-token", continuation);
      else if (!after.empty()) q.query("start-after", after);
      operation op(*s, "LIST", std::move(q), false);
      result<list_result> page = failure(errc::bug, "no page");
      for (unsigned n = 1;; ++n) {
        const std::vector<int> accept;
        optional_failure bad = co_await perform(s, op, accept);
        if (bad) co_return bad->in("prefix \"" + prefix + "\"");
        page = parse_list(op.text);
        if (page) {
          for (const auto& o : page->objects) {
            if (!o.key.starts_with(prefix)) page = failure(errc::bad_response, "the listing has a key outside its prefix");
            if (!page) break;
          }
        }
        if (page) break;
        if (n >= 3) co_return in_context(page.error(), describe(*s, op) + " prefix \"" + prefix + "\"");
        any_clock clock = s->config.clock();
        const duration wait = s->jitter(n);
        co_await clock.wait_for(wait);
      }
      if (!page->objects.empty() || !page->truncated || page->continuation.empty()) co_return page;
      continuation = page->continuation;
    }
    co_return failure(errc::bad_response, "LIST: a hundred empty pages in a row");
  }

  static asio::awaitable<result<std::vector<std::pair<std::string, failure>>>> remove_all(std::shared_ptr<state> s, std::vector<std::string> keys) {
    std::vector<std::pair<std::string, failure>> failed;
    for (std::size_t first = 0; first < keys.size(); first += 1000) {
      std::vector<std::string> batch(keys.begin() + static_cast<std::ptrdiff_t>(first),
                                     keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), first + 1000)));
      const std::string body = delete_body(batch);
      request q("POST", std::string());
      q.query("delete").header("content-md5", md5_base64(body)).payload_hash(sha256_hex(body));
      operation op(*s, "DELETE", std::move(q), true);
      op.body.push_back(as_bytes(body));
      result<delete_result> done = failure(errc::bug, "no answer");
      for (unsigned n = 1;; ++n) {
        const std::vector<int> accept;
        optional_failure bad = co_await perform(s, op, accept);
        if (bad) co_return bad->in(std::to_string(batch.size()) + " keys from " + batch.front());
        done = parse_delete(op.text);
        if (done) break;
        if (n >= 3) co_return in_context(done.error(), describe(*s, op));
        any_clock clock = s->config.clock();
        const duration wait = s->jitter(n);
        co_await clock.wait_for(wait);
      }
      std::set<std::string> seen(done->removed.begin(), done->removed.end());
      for (auto& [key, e] : done->failed) {
        seen.insert(key);
        if (e.code == "NoSuchKey") continue;
        const verdict v = classify_answer(200, e.code);
        failed.emplace_back(key, failure(e.code == "AccessDenied" ? errc::access_denied : v.code(), "DELETE " + key + ": " + e.code + " " + e.message)
                                     .with_server_code(e.code));
      }
      for (const std::string& key : batch) {
        if (!seen.contains(key)) failed.emplace_back(key, failure(errc::bad_response, "DELETE " + key + ": the answer does not mention it"));
      }
    }
    co_return failed;
  }

  static asio::awaitable<optional_failure> make_bucket(std::shared_ptr<state> s) {
    request q("PUT", std::string());
    operation op(*s, "CREATE BUCKET", std::move(q), true);
    std::string body;
    if (s->config.on_aws() && s->config.region() != "us-east-1") {
      body = "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>" + xml_escape(s->config.region()) +
             "</LocationConstraint></CreateBucketConfiguration>";
      op.body.push_back(as_bytes(body));
      op.what.payload_hash(sha256_hex(body));
    }
    const std::vector<int> accept{409};
    optional_failure bad = co_await perform(s, op, accept);
    if (bad) co_return bad;
    if (op.head.status == 409 && op.code != "BucketAlreadyOwnedByYou") {
      // Some stores use one code for "yours" and "somebody else's": what counts is whether these credentials reach it.
      request look("HEAD", std::string());
      operation there(*s, "HEAD BUCKET", std::move(look), false);
      const std::vector<int> none;
      optional_failure out_of_reach = co_await perform(s, there, none);
      if (!out_of_reach) co_return std::nullopt;
      co_return failure(errc::rejected, describe(*s, op) + ": 409 " + op.code).with_status(409).with_server_code(op.code).with_fate(fate::did_not_happen);
    }
    co_return std::nullopt;
  }

  // ---- multipart ----

  struct upload {
    std::string key, id;
    const_buffers body;
    std::uint64_t part = 0;
    std::size_t next = 0;
    std::vector<std::string> etags;
    optional_failure bad;
  };

  static const_buffers slice_of(const const_buffers& all, std::uint64_t from, std::uint64_t size) {
    const_buffers r;
    for (const auto& b : all) {
      if (size == 0) break;
      if (from >= b.size()) {
        from -= b.size();
        continue;
      }
      const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(size, b.size() - from));
      r.push_back(b.subspan(static_cast<std::size_t>(from), n));
      from = 0;
      size -= n;
    }
    return r;
  }

  static asio::awaitable<void> send_parts(std::shared_ptr<state> s, std::shared_ptr<upload> u) {
    while (!u->bad && u->next < u->etags.size()) {
      const std::size_t i = u->next++;
      request q("PUT", u->key);
      q.query("partNumber", std::to_string(i + 1)).query("uploadId", u->id);
      operation op(*s, "PUT part " + std::to_string(i + 1), std::move(q), true);
      op.body = slice_of(u->body, i * u->part, u->part);
      protect(*s, op);
      const std::vector<int> accept;
      optional_failure bad = co_await perform(s, op, accept);
      if (!bad) {
        u->etags[i] = std::string(op.head.find("etag").value_or(""));
        if (u->etags[i].empty()) bad = failure(errc::bad_response, describe(*s, op) + ": no ETag");
      }
      if (bad && !u->bad) u->bad = bad;
    }
  }

  static asio::awaitable<result<put_result>> put_parts(std::shared_ptr<state> s, std::string key, const_buffers body) {
    const std::uint64_t size = total_size(body);
    std::string token;
    {
      const std::lock_guard lock(s->mutex);
      token = id128::draw(s->random).to_string();
    }
    request start("POST", key);
    start.query("uploads").header("x-amz-meta-batchweave-token", token);
    operation opening(*s, "START UPLOAD", std::move(start), true);
    const std::vector<int> none;
    optional_failure bad = co_await perform(s, opening, none);
    if (bad) co_return *bad;
    const result<std::string> id = parse_initiate(opening.text);
    if (!id) co_return in_context(id.error(), describe(*s, opening));

    auto u = std::make_shared<upload>();
    u->key = key;
    u->id = *id;
    u->body = body;
    u->part = std::max<std::uint64_t>(s->config.part_size(), (size + 9999) / 10000);
    u->etags.resize(static_cast<std::size_t>((size + u->part - 1) / u->part));
    {
      const asio::any_io_executor executor = co_await asio::this_coro::executor;
      task_group group(executor);
      const std::size_t workers = std::min(s->config.parts_in_flight(), u->etags.size());
      for (std::size_t w = 0; w < workers; ++w) group.spawn(send_parts(s, u));
      // The pieces belong to the caller: whatever happens, no part may still be on its way when this returns.
      std::exception_ptr thrown;
      try {
        co_await group.join();
      } catch (...) {
        thrown = std::current_exception();
      }
      if (thrown) {
        group.cancel();
        co_await asio::this_coro::throw_if_cancelled(false);
        try {
          co_await group.join();
        } catch (...) {
        }
        std::rethrow_exception(thrown);
      }
    }
    if (!u->bad) {
      result<put_result> done = co_await complete(s, u, token, size);
      if (done || done.error().fate() == fate::unknown) co_return done;
      u->bad = done.error();
    }
    request quit("DELETE", key);
    quit.query("uploadId", u->id);
    operation abort(*s, "ABORT UPLOAD", std::move(quit), true);
    const std::vector<int> gone{404};
    optional_failure left = co_await perform(s, abort, gone);
    if (left) s->failed_aborts.fetch_add(1);
    co_return *u->bad;
  }

  static asio::awaitable<result<put_result>> complete(std::shared_ptr<state> s, std::shared_ptr<upload> u, std::string token, std::uint64_t size) {
    const std::string body = complete_body(u->etags);
    put_result r;
    for (unsigned n = 1;; ++n) {
      request q("POST", u->key);
      q.query("uploadId", u->id).payload_hash(sha256_hex(body));
      operation op(*s, "COMPLETE UPLOAD", std::move(q), true);
      op.body.push_back(as_bytes(body));
      const std::vector<int> accept{404};
      optional_failure bad = co_await perform(s, op, accept);
      if (bad) co_return *bad;
      if (op.head.status == 404) {
        // An earlier attempt may have done it: then the object carries our token.
        request look("HEAD", u->key);
        operation there(*s, "HEAD", std::move(look), false);
        optional_failure blind = co_await perform(s, there, accept);
        if (blind) co_return *blind;
        if (there.head.status == 200 && there.head.find("x-amz-meta-batchweave-token") == std::string_view(token) && there.head.content_length == size) {
          r.applied = true;
          r.etag = std::string(there.head.find("etag").value_or(""));
          co_return r;
        }
        co_return failure(errc::rejected, describe(*s, op) + ": 404 " + op.code + ": the upload is gone and the object is not ours")
            .with_status(404)
            .with_server_code(op.code)
            .with_fate(fate::did_not_happen);
      }
      const result<complete_result> done = parse_complete(op.text);
      if (done && !done->error) {
        r.applied = true;
        r.etag = done->etag;
        co_return r;
      }
      failure why = done ? refusal(op, *done->error, classify_answer(200, done->error->code)) : done.error();
      const bool retry = !done || classify_answer(200, done->error->code).retryable();
      if (!retry || n >= s->config.retry().attempts()) co_return in_context(why, describe(*s, op));
      any_clock clock = s->config.clock();
      const duration wait = s->jitter(n);
      co_await clock.wait_for(wait);
    }
  }

  static constexpr std::size_t small_body = 64 * 1024;
  static constexpr std::size_t text_limit = std::size_t{16} << 20;

  std::shared_ptr<state> state_;
};

}  // namespace batchweave::s3
