// One request and its answer on a connection: pieces are sent as they are, body bytes go straight to where they belong.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/http/connection.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include <cctype>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::http {

/// Status and header fields of an answer.
class response_head {
 public:
  response_head() = default;
  int status = 0;
  std::vector<std::pair<std::string, std::string>> fields;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = false;

  /// First field of that name, compared without case.
  std::optional<std::string_view> find(std::string_view name) const {
    for (const auto& [n, v] : fields) {
      if (n.size() != name.size()) continue;
      bool same = true;
      for (std::size_t i = 0; i < n.size() && same; ++i) {
        same = std::tolower(static_cast<unsigned char>(n[i])) == std::tolower(static_cast<unsigned char>(name[i]));
      }
      if (same) return std::string_view(v);
    }
    return std::nullopt;
  }
};

/// Drives one exchange: request(), then read_into() or read_text(), then finish(). An object that goes away before finish() leaves a
/// connection that is not reusable. Failures are errc::first_byte_timeout, stalled, overall_timeout, connection_lost, body_truncated,
/// bad_response; cancelling throws operation_aborted. Source: RFC 9112.
class exchange {
 public:
  exchange(asio::any_io_executor executor, connection& c, timeouts limits, time_point overall)
      : connection_(c), limits_(limits), guard_(std::move(executor), c.socket(), overall), buffer_(buffer_limit) {
    buffer_.reserve(4096);
    connection_.set_reusable(false);
  }

  const response_head& head() const noexcept { return head_; }
  /// Whether a byte of the request may have reached the peer.
  bool started() const noexcept { return sent_ > 0; }
  /// Whether a byte of an answer has come.
  bool answered() const noexcept { return answered_; }

  /// Sends head and body and reads the head of the answer. An answer that comes before the body is sent ends the sending: some servers
  /// refuse at once and close. `no_body`: a HEAD request, whose answer has no body whatever its Content-Length says.
  asio::awaitable<std::optional<failure>> request(std::string text, const_buffers body, bool no_body) {
    no_body_ = no_body;
    std::vector<asio::const_buffer> pieces;
    pieces.reserve(body.size() + 1);
    pieces.emplace_back(text.data(), text.size());
    for (const auto& b : body) {
      if (!b.empty()) pieces.emplace_back(b.data(), b.size());
    }
    const std::size_t all = text.size() + total_size(body);
    std::size_t first = 0, look_at = 0;
    guard_.arm(errc::stalled, limits_.stall);
    while (sent_ < all) {
      error_code ec;
      std::size_t n = 0;
      if (connection_.secure()) {
        n = co_await connection_.tls().async_write_some(pieces[first], asio::redirect_error(asio::use_awaitable, ec));
      } else {
        const std::vector<asio::const_buffer> rest(pieces.begin() + static_cast<std::ptrdiff_t>(first),
                                                   pieces.begin() + static_cast<std::ptrdiff_t>(std::min(pieces.size(), first + 64)));
        n = co_await connection_.socket().async_write_some(rest, asio::redirect_error(asio::use_awaitable, ec));
      }
      sent_ += n;
      while (n > 0) {
        const std::size_t step = std::min(n, pieces[first].size());
        pieces[first] += step;
        n -= step;
        if (pieces[first].size() == 0) ++first;
      }
      guard_.progress();
      if (!ec && !guard_.fired()) {
        if (sent_ == all || sent_ < look_at) continue;
        look_at = sent_ + look_every;
        if (connection_.pending() <= 0) continue;
        // Over TLS what waits may be no answer but a session ticket.
        if (connection_.secure() && !co_await look_for_answer()) {
          guard_.arm(errc::stalled, limits_.stall);
          continue;
        }
        std::optional<failure> bad = co_await read_head(false);
        if (bad) co_return bad;
        if (head_.status >= 200) co_return std::nullopt;
        guard_.arm(errc::stalled, limits_.stall);
        continue;
      }
      // The answer may be waiting behind the error.
      const bool timed_out = guard_.fired();
      const errc phase = guard_.phase();
      if (!timed_out && ec == asio::error::operation_aborted) throw_cancelled();
      if (phase != errc::overall_timeout && connection_.pending() > 0) {
        std::optional<failure> bad = co_await read_head(true);
        if (!bad) co_return std::nullopt;
      }
      if (timed_out) co_return failure(phase, "sent " + std::to_string(sent_) + " of " + std::to_string(all) + " bytes, then nothing moved");
      co_return failure(errc::connection_lost, "the connection broke after " + std::to_string(sent_) + " of " + std::to_string(all) +
                                                   " bytes of the request: " + ec.message());
    }
    complete_ = true;
    co_return co_await read_head(true);
  }

  /// Content-Length bytes of body, straight into `into`, which has room for them.
  /// `received` counts what has arrived even when the rest does not.
  asio::awaitable<std::optional<failure>> read_into(mutable_buffers into, std::uint64_t& received) {
    std::uint64_t left = head_.content_length.value_or(0);
    std::size_t piece = 0, offset = 0;
    guard_.arm(errc::stalled, limits_.stall);
    while (left > 0 && buffer_.size() > 0) {
      while (piece < into.size() && offset == into[piece].size()) ++piece, offset = 0;
      if (piece == into.size()) break;
      const std::size_t n = static_cast<std::size_t>(
          std::min<std::uint64_t>(left, std::min(buffer_.size(), into[piece].size() - offset)));
      std::memcpy(into[piece].data() + offset, buffer_.data().data(), n);
      buffer_.consume(n);
      offset += n;
      left -= n;
      received += n;
    }
    while (left > 0) {
      while (piece < into.size() && offset == into[piece].size()) ++piece, offset = 0;
      if (piece == into.size()) co_return failure(errc::bad_response, "more bytes than were asked for");
      const std::size_t room = static_cast<std::size_t>(std::min<std::uint64_t>(left, into[piece].size() - offset));
      const asio::mutable_buffer to(into[piece].data() + offset, room);
      error_code ec;
      std::size_t n = 0;
      if (connection_.secure()) {
        n = co_await connection_.tls().async_read_some(to, asio::redirect_error(asio::use_awaitable, ec));
      } else {
        n = co_await connection_.socket().async_read_some(to, asio::redirect_error(asio::use_awaitable, ec));
      }
      offset += n;
      left -= n;
      received += n;
      if (guard_.fired()) co_return failure(guard_.phase(), "the body stopped with " + std::to_string(left) + " bytes to come");
      if (ec) {
        if (ec == asio::error::operation_aborted) throw_cancelled();
        co_return failure(errc::body_truncated, "the body ended with " + std::to_string(left) + " bytes to come: " + ec.message());
      }
      guard_.progress();
    }
    whole_ = true;
    co_return std::nullopt;
  }

  /// The body, decoded from chunks where it is chunked; at most `limit` bytes. Until the end of the connection when the head announces
  /// neither length nor chunks; over TLS only when the peer closed properly.
  asio::awaitable<std::optional<failure>> read_text(std::string& text, std::size_t limit) {
    namespace beast = boost::beast;
    if (!parser_) co_return failure(errc::bug, "no head was read");
    if (head_.content_length.value_or(0) > limit) co_return failure(errc::bad_response, "an answer of " + std::to_string(*head_.content_length) + " bytes");
    parser_->body_limit(limit);
    guard_.arm(errc::stalled, limits_.stall);
    error_code ec;
    while (!parser_->is_done()) {
      if (connection_.secure()) {
        co_await beast::http::async_read_some(connection_.tls(), buffer_, *parser_, asio::redirect_error(asio::use_awaitable, ec));
      } else {
        co_await beast::http::async_read_some(connection_.socket(), buffer_, *parser_, asio::redirect_error(asio::use_awaitable, ec));
      }
      if (guard_.fired()) co_return failure(guard_.phase(), "the answer stopped in its body");
      if (ec == asio::error::operation_aborted) throw_cancelled();
      if (ec == beast::http::error::body_limit) co_return failure(errc::bad_response, "an answer of more than " + std::to_string(limit) + " bytes");
      if (ec == beast::http::error::end_of_stream && parser_->is_done()) break;
      if (ec) co_return failure(errc::body_truncated, "the answer ended in its body: " + ec.message());
      guard_.progress();
    }
    text = std::move(parser_->get().body());
    whole_ = true;
    co_return std::nullopt;
  }

  /// Call when the answer has been read: the connection can then serve another exchange, if this one left nothing behind.
  void finish() noexcept {
    const bool nothing_to_read = no_body_ || head_.status == 204 || head_.status == 304 || (head_.content_length == 0 && !head_.chunked);
    connection_.set_reusable(complete_ && (whole_ || nothing_to_read) && head_.keep_alive && buffer_.size() == 0);
  }

 private:
  using parser_type = boost::beast::http::response_parser<boost::beast::http::string_body>;
  static constexpr std::size_t look_every = 256 * 1024;  // bytes sent between two looks for an early answer
  static constexpr std::size_t buffer_limit = 64 * 1024;
  static constexpr std::uint32_t header_limit = 32 * 1024;

  /// Reads what waits on a TLS connection while a request is being sent. True: the beginning of an answer, or the end.
  asio::awaitable<bool> look_for_answer() {
    error_code ec;
    guard_.arm(errc::stalled, std::chrono::milliseconds(2));
    const auto room = buffer_.prepare(4096);
    const asio::mutable_buffer into(room.data(), room.size());
    const std::size_t n = co_await connection_.tls().async_read_some(into, asio::redirect_error(asio::use_awaitable, ec));
    buffer_.commit(n);
    if (n > 0) co_return true;
    if (!guard_.fired() && ec == asio::error::operation_aborted) throw_cancelled();
    co_return !guard_.fired();
  }

  asio::awaitable<std::optional<failure>> read_head(bool skip_informational) {
    namespace beast = boost::beast;
    guard_.arm(errc::first_byte_timeout, limits_.first_byte);
    for (int heads = 0; heads < 16; ++heads) {
      parser_.emplace();
      parser_->header_limit(header_limit);
      parser_->body_limit(boost::none);
      parser_->skip(no_body_);
      error_code ec;
      // Beast reads what it needs for the head and little more; the body is read past it.
      if (connection_.secure()) {
        co_await beast::http::async_read_header(connection_.tls(), buffer_, *parser_, asio::redirect_error(asio::use_awaitable, ec));
      } else {
        co_await beast::http::async_read_header(connection_.socket(), buffer_, *parser_, asio::redirect_error(asio::use_awaitable, ec));
      }
      if (parser_->got_some() || buffer_.size() > 0) answered_ = true;
      if (guard_.fired()) co_return failure(guard_.phase(), "no answer came in time");
      if (ec == asio::error::operation_aborted) throw_cancelled();
      if (ec) {
        const bool lost = ec == beast::http::error::end_of_stream || ec == beast::http::error::partial_message ||
                          ec.category() != beast::http::make_error_code(beast::http::error::bad_version).category();
        co_return failure(lost ? errc::connection_lost : errc::bad_response,
                          std::string(lost ? "the connection ended before the answer: " : "not an HTTP answer: ") + ec.message());
      }
      take_head();
      if (head_.status >= 200) co_return std::nullopt;
      if (!skip_informational) co_return std::nullopt;
    }
    co_return failure(errc::bad_response, "only informational answers");
  }

  void take_head() {
    const auto& m = parser_->get();
    head_ = response_head();
    head_.status = static_cast<int>(m.result_int());
    head_.keep_alive = m.keep_alive();
    head_.chunked = m.chunked();
    for (const auto& f : m) {
      head_.fields.emplace_back(std::string(f.name_string().data(), f.name_string().size()), std::string(f.value().data(), f.value().size()));
    }
    if (const auto length = head_.find("content-length"); length && !head_.chunked) {
      std::uint64_t v = 0;
      bool good = !length->empty();
      for (const char c : *length) {
        good = good && c >= '0' && c <= '9' && v < (std::uint64_t{1} << 60);
        v = v * 10 + static_cast<std::uint64_t>(c - '0');
      }
      if (good) head_.content_length = v;
    }
  }

  connection& connection_;
  timeouts limits_;
  watchdog guard_;
  boost::beast::flat_buffer buffer_;
  std::optional<parser_type> parser_;
  response_head head_;
  std::size_t sent_ = 0;
  bool no_body_ = false, complete_ = false, whole_ = false, answered_ = false;
};

}  // namespace batchweave::http
