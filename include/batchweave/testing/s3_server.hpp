// An S3 server in the test's own process, on loopback, that does what a script says.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/aio/event.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/testing/s3_certificate.hpp>
#include <batchweave/testing/s3_objects.hpp>
#include <batchweave/testing/s3_script.hpp>
#include <batchweave/testing/s3_server_options.hpp>
#include <batchweave/testing/s3_signature.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include <ctime>
#include <list>
#include <stdexcept>

namespace batchweave::testing {

/// A test double for S3: HTTP/1.1 on 127.0.0.1, plain or TLS, path-style, objects in memory. Done right unless the script says otherwise:
/// SigV4, If-None-Match and If-Match, ranges, ListObjectsV2, DeleteObjects, multipart uploads, payload hashes and checksums.
///
///     asio::io_context io;
///     s3_server server(io.get_executor());
///     server.on("PUT", "log/").nth(2).apply_then_drop();       // the write happened, the client cannot know
///     server.on("LIST").times(3).reply(503, "SlowDown");
///     ... point an s3_store at server.endpoint(), run io ...
///     CHECK(server.count("PUT", "log/") == 3);
///
/// `executor` may be the client's own or belong to a thread of the test; every connection runs on a strand of it. The server must
/// be destroyed before that executor's context. All members are thread safe. It starts no thread.
class s3_server {
 public:
  explicit s3_server(asio::any_io_executor executor, s3_server_options options = s3_server_options())
      : state_(std::make_shared<state>(std::move(executor), std::move(options))) {
    state_->listen();
    spawn(state_, accept(state_));
  }
  s3_server(const s3_server&) = delete;
  s3_server& operator=(const s3_server&) = delete;
  ~s3_server() { stop(); }

  /// Chosen by the system.
  std::uint16_t port() const noexcept { return state_->port; }
  /// "http://127.0.0.1:PORT", or https; another host name for the same address may be given ("localhost").
  std::string endpoint(const std::string& host = "127.0.0.1") const {
    return (options().certificate().empty() ? "http://" : "https://") + host + ":" + std::to_string(port());
  }
  const s3_server_options& options() const noexcept { return state_->options; }

  /// A rule for requests of `operation` (see s3_request, "*" for all) whose key starts with `prefix`. Throws std::invalid_argument
  /// for a name that is no operation.
  s3_rule on(std::string operation, std::string prefix = std::string()) {
    static const std::set<std::string> known = {"*",    "PUT",   "GET",   "HEAD",         "DELETE",        "LIST",        "DELETE_OBJECTS",
                                                "PART", "ABORT", "OTHER", "INITIATE",     "COMPLETE",      "LIST_UPLOADS", "CREATE_BUCKET",
                                                "HEAD_BUCKET"};
    if (!known.contains(operation)) throw std::invalid_argument("s3_server::on: no operation is called " + operation);
    auto rule = std::make_shared<detail::s3_rule_state>();
    rule->operation = std::move(operation);
    rule->prefix = std::move(prefix);
    {
      const std::lock_guard lock(state_->script->mutex);
      state_->script->rules.push_back(rule);
    }
    return s3_rule(state_->script, rule);
  }
  /// Forgets every rule; held requests are applied.
  void clear_script() {
    std::vector<std::shared_ptr<detail::s3_rule_state>> gone;
    {
      const std::lock_guard lock(state_->script->mutex);
      gone.swap(state_->script->rules);
      for (auto& r : gone) r->released = true;
    }
    for (auto& r : gone) r->release.notify();
  }

  /// The server's clock differs from the machine's: it changes the Date header and what counts as too skewed.
  void clock_offset(std::chrono::seconds s) {
    const std::lock_guard lock(state_->script->mutex);
    state_->offset = s;
  }
  /// Expects another region from now on.
  void region(std::string name) {
    const std::lock_guard lock(state_->script->mutex);
    state_->identity.region(std::move(name));
  }
  /// The next n connections are accepted and closed at once.
  void close_next_connections(unsigned n) {
    const std::lock_guard lock(state_->script->mutex);
    state_->close_next = n;
  }
  /// The next n connections are accepted and then ignored: a peer that is silent from the start.
  void mute_next_connections(unsigned n) {
    const std::lock_guard lock(state_->script->mutex);
    state_->mute_next = n;
  }
  /// Closes every connection on which no request is in progress, as a server does after its idle limit.
  void close_idle_connections() {
    std::vector<std::shared_ptr<connection>> idle;
    {
      const std::lock_guard lock(state_->script->mutex);
      for (auto& c : state_->connections) {
        if (c->idle) idle.push_back(c);
      }
    }
    for (auto& c : idle) close_later(c);
  }
  /// Closes the listener and every connection. Held requests are not applied.
  void stop() { state_->stop(state_); }

  /// Waits until `condition()` holds; looks again after every request, reply and hold. Other changes do not wake it.
  asio::awaitable<void> until(std::function<bool()> condition) { return wait_until(state_, std::move(condition)); }

  // ---- what is stored ----
  void put_object(const std::string& key, std::string bytes, s3_request::fields headers = s3_request::fields()) {
    const std::lock_guard lock(state_->script->mutex);
    const std::string etag = detail::md5_etag(bytes);
    (*state_->objects.bucket(state_->options.bucket()))[key] = s3_object(std::move(bytes), etag, std::move(headers));
  }
  std::optional<std::string> object(const std::string& key) const {
    const std::lock_guard lock(state_->script->mutex);
    auto& all = *state_->objects.bucket(state_->options.bucket());
    const auto at = all.find(key);
    if (at == all.end()) return std::nullopt;
    return at->second.bytes();
  }
  void erase_object(const std::string& key) {
    const std::lock_guard lock(state_->script->mutex);
    state_->objects.bucket(state_->options.bucket())->erase(key);
  }
  std::vector<std::string> keys(const std::string& prefix = std::string()) const {
    const std::lock_guard lock(state_->script->mutex);
    std::vector<std::string> r;
    for (const auto& [k, o] : *state_->objects.bucket(state_->options.bucket())) {
      if (k.starts_with(prefix)) r.push_back(k);
    }
    return r;
  }
  /// Multipart uploads that were neither completed nor aborted.
  std::size_t uploads() const {
    const std::lock_guard lock(state_->script->mutex);
    return state_->objects.uploads();
  }

  // ---- what was asked ----
  std::vector<s3_request> requests() const {
    const std::lock_guard lock(state_->script->mutex);
    std::vector<s3_request> copy;
    for (const auto& q : state_->requests) copy.push_back(*q);
    return copy;
  }
  /// Requests of an operation ("*": all) whose key starts with a prefix.
  std::size_t count(const std::string& operation, const std::string& prefix = std::string()) const {
    const std::lock_guard lock(state_->script->mutex);
    std::size_t n = 0;
    for (const auto& q : state_->requests) n += (operation == "*" || q->operation() == operation) && q->key().starts_with(prefix);
    return n;
  }
  void forget_requests() {
    const std::lock_guard lock(state_->script->mutex);
    state_->requests.clear();
  }
  /// Connections accepted so far.
  std::uint64_t connections() const {
    const std::lock_guard lock(state_->script->mutex);
    return state_->accepted;
  }
  /// The name each TLS handshake asked for (SNI), in order; empty where it named none.
  std::vector<std::string> server_names() const {
    const std::lock_guard lock(state_->script->mutex);
    return state_->server_names;
  }
  /// PUT and PART requests that came with neither a signed hash nor a checksum: their body could be cut off unnoticed.
  std::uint64_t unprotected_writes() const {
    const std::lock_guard lock(state_->script->mutex);
    return state_->unprotected;
  }
  /// Errors inside the server itself; empty in a sound test.
  std::vector<std::string> errors() const {
    const std::lock_guard lock(state_->script->mutex);
    return state_->errors;
  }

 private:
  using tcp = asio::ip::tcp;
  using plan = detail::s3_plan;

  class connection {
   public:
    connection(tcp::socket s, std::uint64_t n) : socket(std::move(s)), number(n) {}
    tcp::socket socket;
    const std::uint64_t number;
    bool idle = true;
    bool polite = false;  // TLS: say close_notify at the end
  };

  class state {
   public:
    state(asio::any_io_executor e, s3_server_options o)
        : executor(std::move(e)), options(std::move(o)), identity(options.identity()),
          acceptor(asio::make_strand(executor)), script(std::make_shared<detail::s3_script_state>()) {
      objects.page_limit = options.page_limit();
      objects.unordered = options.unordered();
      objects.min_part = options.min_part();
      objects.create_bucket(options.bucket());
      if (options.certificate().empty()) return;
      show(tls, options.certificate());
      for (const auto& [name, certificate] : options.named_certificates()) show(named_tls.try_emplace(name, asio::ssl::context::tls_server).first->second, certificate);
      SSL_CTX_set_tlsext_servername_callback(tls.native_handle(), &state::choose);
      SSL_CTX_set_tlsext_servername_arg(tls.native_handle(), this);
    }
    static void show(asio::ssl::context& where, const s3_certificate& c) {
      where.use_certificate_chain(asio::buffer(c.certificate()));
      where.use_private_key(asio::buffer(c.key()), asio::ssl::context::pem);
    }
    static int choose(SSL* ssl, int*, void* self) {
      state& s = *static_cast<state*>(self);
      const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
      {
        const std::lock_guard lock(s.script->mutex);
        s.server_names.emplace_back(name ? name : "");
      }
      const auto at = s.named_tls.find(name ? name : "");
      if (at != s.named_tls.end()) SSL_set_SSL_CTX(ssl, at->second.native_handle());
      return SSL_TLSEXT_ERR_OK;
    }
    void listen() {
      const tcp::endpoint here(asio::ip::address_v4::loopback(), 0);
      acceptor.open(here.protocol());
      acceptor.bind(here);
      acceptor.listen(1024);
      port = acceptor.local_endpoint().port();
    }
    void stop(const std::shared_ptr<state>& self) {
      std::list<std::shared_ptr<connection>> open;
      std::vector<std::shared_ptr<detail::s3_rule_state>> rules;
      {
        const std::lock_guard lock(script->mutex);
        if (stopping) return;
        stopping = true;
        rules = script->rules;
        open = connections;
      }
      asio::post(acceptor.get_executor(), [self] {
        error_code ignored;
        self->acceptor.close(ignored);
      });
      for (auto& c : open) close_later(c);
      script->changed.notify();
      stopped.notify();
      for (auto& r : rules) r->release.notify();
    }

    asio::any_io_executor executor;
    const s3_server_options options;
    s3_identity identity;
    asio::ssl::context tls{asio::ssl::context::tls_server};
    std::map<std::string, asio::ssl::context> named_tls;
    tcp::acceptor acceptor;
    std::uint16_t port = 0;
    const std::shared_ptr<detail::s3_script_state> script;  // its mutex guards everything below
    s3_objects objects;
    std::list<std::shared_ptr<connection>> connections;
    std::vector<std::shared_ptr<s3_request>> requests;
    std::vector<std::string> errors, server_names;
    std::uint64_t accepted = 0, unprotected = 0;
    unsigned close_next = 0, mute_next = 0;
    std::chrono::seconds offset{0};
    bool stopping = false;
    async_event stopped;
  };

  static asio::awaitable<void> wait_until(std::shared_ptr<state> s, std::function<bool()> condition) {
    for (;;) {
      const async_event::ticket seen = s->script->changed.observe();
      if (condition()) co_return;
      co_await s->script->changed.wait(seen);
    }
  }

  static void close_later(const std::shared_ptr<connection>& c) {
    asio::post(c->socket.get_executor(), [c] {
      error_code ignored;
      c->socket.close(ignored);
    });
  }

  static void spawn(const std::shared_ptr<state>& s, asio::awaitable<void> work) { spawn_on(s->acceptor.get_executor(), s, std::move(work)); }
  template <class Executor>
  static void spawn_on(Executor executor, const std::shared_ptr<state>& s, asio::awaitable<void> work) {
    asio::co_spawn(executor, std::move(work), [s](std::exception_ptr e) {
      if (!e) return;
      std::string what = "unknown exception";
      try {
        std::rethrow_exception(e);
      } catch (const std::exception& x) {
        what = x.what();
      } catch (...) {
      }
      const std::lock_guard lock(s->script->mutex);
      s->errors.push_back(what);
    });
  }

  static asio::awaitable<void> accept(std::shared_ptr<state> s) {
    for (;;) {
      error_code ec;
      tcp::socket socket = co_await s->acceptor.async_accept(asio::make_strand(s->executor), asio::redirect_error(asio::use_awaitable, ec));
      std::shared_ptr<connection> c;
      bool mute = false;
      {
        const std::lock_guard lock(s->script->mutex);
        if (s->stopping) co_return;
        if (ec) continue;
        c = std::make_shared<connection>(std::move(socket), ++s->accepted);
        if (s->close_next) {
          --s->close_next;
          c->socket.close(ec);
          continue;
        }
        if (s->mute_next) {
          --s->mute_next;
          mute = true;
          c->idle = false;
        }
        s->connections.push_back(c);
      }
      const tcp::no_delay no_delay(true);
      c->socket.set_option(no_delay, ec);
      asio::any_io_executor strand = c->socket.get_executor();
      if (!mute) spawn_on(strand, s, serve(s, c));
    }
  }

  static asio::awaitable<void> serve(std::shared_ptr<state> s, std::shared_ptr<connection> c) {
    boost::beast::flat_buffer buffer;
    error_code ignored;
    bool more = true;
    if (s->options.certificate().empty()) {
      while (more) more = co_await exchange(*s, *c, c->socket, buffer);
    } else {
      asio::ssl::stream<tcp::socket&> stream(c->socket, s->tls);
      co_await stream.async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, ignored));
      more = !ignored;
      while (more) more = co_await exchange(*s, *c, stream, buffer);
      // Waits for the peer's close_notify; stop() ends that wait too.
      if (c->polite) co_await stream.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
    }
    c->socket.close(ignored);
    const std::lock_guard lock(s->script->mutex);
    s->connections.remove(c);
  }

  /// The connection stays open and nothing moves on it any more, until the server stops.
  static asio::awaitable<void> stand_still(state& s) {
    for (;;) {
      const async_event::ticket seen = s.stopped.observe();
      {
        const std::lock_guard lock(s.script->mutex);
        if (s.stopping) co_return;
      }
      co_await s.stopped.wait(seen);
    }
  }

  static asio::awaitable<void> pause(std::chrono::milliseconds t) {
    if (t.count() <= 0) co_return;
    any_clock clock;
    co_await clock.wait_for(t);
  }

  template <class Stream>
  static asio::awaitable<bool> send(Stream& stream, std::string_view text) {
    error_code ec;
    const asio::const_buffer bytes(text.data(), text.size());
    co_await asio::async_write(stream, bytes, asio::redirect_error(asio::use_awaitable, ec));
    co_return !ec;
  }

  /// One request and its answer; false when the connection is finished.
  template <class Stream>
  static asio::awaitable<bool> exchange(state& s, connection& c, Stream& stream, boost::beast::flat_buffer& buffer) {
    namespace http = boost::beast::http;
    http::request_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    parser.header_limit(64 * 1024);
    error_code ec;
    co_await http::async_read_header(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return false;
    const auto& head = parser.get();
    s3_request::fields fields;
    for (const auto& f : head) fields.emplace_back(std::string(f.name_string()), std::string(f.value()));
    s3_request request(std::string(head.method_string()), std::string(head.target()), std::move(fields));
    request.connection(c.number);

    plan todo;
    const auto record = std::make_shared<s3_request>(request);
    {
      const std::lock_guard lock(s.script->mutex);
      c.idle = false;
      c.polite = false;
      s.requests.push_back(record);
      for (auto& rule : s.script->rules) {
        if (!rule->matches(request)) continue;
        const unsigned n = ++rule->seen;
        if (n < rule->from || n - rule->from >= rule->count) continue;
        ++rule->acted;
        for (auto& action : rule->actions) action(todo);
        if (!rule->strip.empty()) request.drop_header(rule->strip);
      }
      if ((request.operation() == "PUT" || request.operation() == "PART") && !s3_objects::is_protected(request)) ++s.unprotected;
    }
    s.script->changed.notify();

    co_await pause(todo.latency);
    if (todo.what == plan::fate::never_read) {
      co_await stand_still(s);
      co_return false;
    }
    if (todo.what == plan::fate::answer_early) {
      plan plain;
      plain.close_after = true;
      co_await answer(s, c, stream, request, *todo.instead, plain, *record);
      co_return false;
    }
    if (lower_equals(request.header("expect").value_or(""), "100-continue") && todo.say_continue) {
      if (!co_await send(stream, "HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    }
    co_await http::async_read(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return false;  // cut off: nothing is stored
    const std::string& body = parser.get().body();
    const bool keep = parser.get().keep_alive();
    {
      const std::lock_guard lock(s.script->mutex);
      record->body_size(body.size());
    }
    if (todo.what == plan::fate::drop) co_return false;
    if (todo.what == plan::fate::hold) {
      {
        const std::lock_guard lock(s.script->mutex);
        todo.on_hold();
      }
      s.script->changed.notify();
      for (;;) {
        const async_event::ticket seen = todo.held_by->observe();
        {
          const std::lock_guard lock(s.script->mutex);
          if (s.stopping) co_return false;
          if (todo.released()) break;
        }
        co_await todo.held_by->wait(seen);
      }
    }

    s3_reply reply;
    if (todo.instead) {
      reply = *todo.instead;
    } else {
      bool checked = false;
      std::optional<s3_reply> refused;
      {
        const std::lock_guard lock(s.script->mutex);
        refused = refuse(s, request, body);
        if (!refused && todo.check_then_write) {
          for (const std::string& name : todo.ignored) request.drop_header(name);
          refused = s.objects.refuse_condition(request);
          checked = true;
        }
      }
      if (checked && !refused) co_await pause(*todo.check_then_write);
      if (refused) {
        reply = *refused;
      } else {
        const std::lock_guard lock(s.script->mutex);
        for (const std::string& name : todo.ignored) request.drop_header(name);
        reply = s.objects.execute(request, body, checked);
      }
      s.script->changed.notify();
      if (todo.after_apply) reply = *todo.after_apply;
    }
    if (todo.what == plan::fate::drop_after_apply) co_return false;
    if (todo.stall_head) {
      co_await stand_still(s);
      co_return false;
    }
    const bool alive = co_await answer(s, c, stream, request, reply, todo, *record);
    if (alive && keep) {
      const std::lock_guard lock(s.script->mutex);
      c.idle = true;
      co_return !s.stopping;
    }
    co_return false;
  }

  static bool lower_equals(std::string_view a, std::string_view b) { return detail::lower(a) == b; }

  static std::optional<s3_reply> refuse(state& s, const s3_request& request, const std::string& body) {
    if (s.options.check_signatures()) {
      if (auto r = refuse_signature(request, s.identity, now(s))) return r;
    }
    return s3_objects::refuse_body(request, body);
  }

  static std::chrono::sys_seconds now(const state& s) {
    return std::chrono::time_point_cast<std::chrono::seconds>(real_clock().wall_now()) + s.offset;
  }

  static std::string http_date(std::chrono::sys_seconds t) {
    const std::time_t at = std::chrono::system_clock::to_time_t(std::chrono::system_clock::time_point(t));
    std::tm parts{};
    gmtime_r(&at, &parts);
    static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char text[64];
    std::snprintf(text, sizeof text, "%s, %02d %s %d %02d:%02d:%02d GMT", days[parts.tm_wday], parts.tm_mday, months[parts.tm_mon],
                  parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
    return text;
  }

  /// Sends `reply`, damaged as `todo` says. False when the connection is finished.
  template <class Stream>
  static asio::awaitable<bool> answer(state& s, connection& c, Stream& stream, const s3_request& request, const s3_reply& reply, const plan& todo,
                                      s3_request& record) {
    const bool head_only = request.method() == "HEAD" || reply.status() == 204 || reply.status() == 304;
    std::string body = reply.body();
    if (todo.flip_at && *todo.flip_at < body.size()) body[*todo.flip_at] = static_cast<char>(body[*todo.flip_at] ^ 1);
    s3_reply dressed = reply;
    for (const auto& [name, value] : todo.extra_headers) dressed.header(name, value);

    std::string text;
    for (const int status : todo.informational) text += "HTTP/1.1 " + std::to_string(status) + " Informational\r\nLink: </x>\r\n\r\n";
    text += "HTTP/1.1 " + std::to_string(reply.status()) + " Status\r\n";
    {
      const std::lock_guard lock(s.script->mutex);
      text += "Date: " + http_date(now(s)) + "\r\n";
      record.status(reply.status());
    }
    text += "x-amz-request-id: TESTREQUEST\r\nServer: batchweave-test\r\n";
    for (const auto& [name, value] : dressed.headers()) text += name + ": " + value + "\r\n";
    const bool chunked = todo.chunked && !head_only;
    const bool until_close = todo.no_length && !head_only;
    if (chunked) {
      text += "Transfer-Encoding: chunked\r\n";
    } else if (!until_close && reply.status() != 204) {
      text += "Content-Length: " + std::to_string(todo.announced.value_or(dressed.announced())) + "\r\n";
    }
    text += "\r\n";
    if (!co_await send(stream, text)) co_return false;
    if (!head_only) {
      const std::uint64_t stop_at = std::min(todo.cut_after.value_or(body.size() + 1), todo.stall_after.value_or(body.size() + 1));
      const std::size_t limit = static_cast<std::size_t>(std::min<std::uint64_t>(stop_at, body.size()));
      const std::size_t step = todo.drip ? todo.drip : std::size_t{256} << 10;
      for (std::size_t at = 0; at < limit; at += step) {
        const std::string_view piece = std::string_view(body).substr(at, std::min(step, limit - at));
        if (todo.drip && at) co_await pause(todo.drip_pause);
        if (chunked) {
          char size[24];
          std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
          std::string framed(size);
          framed.append(piece).append("\r\n");
          if (!co_await send(stream, framed)) co_return false;
        } else if (!co_await send(stream, piece)) {
          co_return false;
        }
      }
      if (todo.stall_after) {
        co_await stand_still(s);
        co_return false;
      }
      if (todo.cut_after) {
        error_code ec;
        const asio::socket_base::linger hard(true, 0);
        if (todo.reset) c.socket.set_option(hard, ec);
        co_return false;
      }
      if (chunked && !co_await send(stream, "0\r\n\r\n")) co_return false;
    }
    c.polite = !todo.rude;
    co_return !todo.close_after && !until_close;
  }

  std::shared_ptr<state> state_;
};

}  // namespace batchweave::testing
