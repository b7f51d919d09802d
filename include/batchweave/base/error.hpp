// Failures as values: one code, a fate, a context; and the one exception type that carries them.
#pragma once

#include <batchweave/base/config.hpp>

#include <boost/system/error_code.hpp>
#include <boost/system/result.hpp>
#include <boost/system/system_error.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace batchweave {

using boost::system::error_code;

/// What went wrong. `kind_of` says what to do about it.
enum class errc {
  invalid_argument = 1,  ///< an option, key or URL that can never work
  not_supported,         ///< the store lacks a capability that the role needs
  store_unsafe,          ///< the store does not honour If-None-Match
  credentials_missing,   ///< no provider had credentials, or a file could not be read
  access_denied,         ///< the store refused these credentials for this request (401, 403)
  bucket_missing,        ///< the bucket or root folder does not exist
  resolve_failed,        ///< the host name did not resolve
  connect_failed,        ///< no address accepted a connection
  tls_failed,            ///< handshake, certificate or host name check failed
  connect_timeout,       ///< no TCP connection within the limit
  tls_timeout,           ///< no TLS handshake within the limit
  first_byte_timeout,    ///< no response head within the limit
  stalled,               ///< no byte moved within the stall limit
  overall_timeout,       ///< the whole operation took longer than its limit
  connection_lost,       ///< reset, broken pipe or end of file in mid-exchange
  bad_response,          ///< the peer answered something that is not what was asked for
  body_truncated,        ///< fewer body bytes than announced or asked for
  throttled,             ///< the store asked to slow down (429, 503 SlowDown)
  store_unavailable,     ///< the store had an internal error (500, 502, 503, 504)
  rejected,              ///< the store refused the request for a reason that does not go away
  clock_skewed,          ///< the host clock and the store clock differ too much to sign
  object_missing,        ///< an object that must exist does not
  object_changed,        ///< an immutable object changed while it was read
  damaged,               ///< a checksum or format check failed
  fenced,                ///< a newer incarnation of this producer exists
  stream_missing,        ///< there is no stream under this prefix
  stream_mismatch,       ///< the stream is not the one that was asked for
  stream_closed,         ///< the stream has ended, nothing can be published
  reclaimed,             ///< the step is below the trim step, its data may be gone
  beyond_end,            ///< the step is past the final step of a closed stream
  undecided,             ///< a conditional write is neither known to have happened nor to be lost
  retries_exhausted,     ///< the retry or time budget is used up
  cancelled,             ///< the caller cancelled the operation
  waited_too_long,       ///< the caller's own deadline for visibility passed
  budget_too_small,      ///< the memory budget is less than one unit
  io_error,              ///< the local file system failed
  closed,                ///< the object was closed and takes no more work
  bug                    ///< an invariant of the library does not hold
};

/// What a user must do about an error.
enum class error_kind {
  retry_later,   ///< nothing is wrong with the request, try again later
  reconfigure,   ///< fix an option, the credentials or the store
  reopen,        ///< this object cannot go on, open a new one
  stop,          ///< another incarnation took over, do not retry
  data_damaged,  ///< bytes are wrong or gone
  cancelled,     ///< the caller asked for it
  bug            ///< report it
};

constexpr error_kind kind_of(errc e) noexcept {
  switch (e) {
    case errc::invalid_argument:
    case errc::not_supported:
    case errc::store_unsafe:
    case errc::credentials_missing:
    case errc::access_denied:
    case errc::bucket_missing:
    case errc::tls_failed:
    case errc::rejected:
    case errc::clock_skewed:
    case errc::stream_missing:
    case errc::stream_mismatch:
    case errc::beyond_end:
    case errc::budget_too_small:
    case errc::io_error: return error_kind::reconfigure;
    case errc::fenced: return error_kind::stop;
    case errc::stream_closed:
    case errc::undecided:
    case errc::closed: return error_kind::reopen;
    case errc::damaged:
    case errc::object_missing:
    case errc::object_changed:
    case errc::reclaimed: return error_kind::data_damaged;
    case errc::cancelled: return error_kind::cancelled;
    case errc::bug: return error_kind::bug;
    default: return error_kind::retry_later;
  }
}

namespace detail {
struct error_category final : boost::system::error_category {
  const char* name() const noexcept override { return "batchweave"; }
  std::string message(int v) const override {
    switch (static_cast<errc>(v)) {
      case errc::invalid_argument: return "invalid argument";
      case errc::not_supported: return "the store lacks a needed capability";
      case errc::store_unsafe: return "this store does not honour If-None-Match";
      case errc::credentials_missing: return "no usable credentials";
      case errc::access_denied: return "access denied";
      case errc::bucket_missing: return "the bucket or folder does not exist";
      case errc::resolve_failed: return "the host name did not resolve";
      case errc::connect_failed: return "could not connect";
      case errc::tls_failed: return "TLS handshake or verification failed";
      case errc::connect_timeout: return "timed out connecting";
      case errc::tls_timeout: return "timed out in the TLS handshake";
      case errc::first_byte_timeout: return "timed out waiting for the response";
      case errc::stalled: return "the transfer stalled";
      case errc::overall_timeout: return "the operation exceeded its overall limit";
      case errc::connection_lost: return "the connection was lost";
      case errc::bad_response: return "unexpected response";
      case errc::body_truncated: return "the body ended early";
      case errc::throttled: return "the store asked to slow down";
      case errc::store_unavailable: return "the store is unavailable";
      case errc::rejected: return "the store rejected the request";
      case errc::clock_skewed: return "the clock differs too much from the store's";
      case errc::object_missing: return "the object does not exist";
      case errc::object_changed: return "the object changed while it was read";
      case errc::damaged: return "the data are damaged";
      case errc::fenced: return "fenced by a newer incarnation of this producer";
      case errc::stream_missing: return "no stream here";
      case errc::stream_mismatch: return "not the expected stream";
      case errc::stream_closed: return "the stream is closed";
      case errc::reclaimed: return "the step was reclaimed";
      case errc::beyond_end: return "the step is beyond the end of the stream";
      case errc::undecided: return "the outcome of a conditional write is undecided";
      case errc::retries_exhausted: return "retries exhausted";
      case errc::cancelled: return "cancelled";
      case errc::waited_too_long: return "waited too long";
      case errc::budget_too_small: return "the memory budget is smaller than one unit";
      case errc::io_error: return "file system error";
      case errc::closed: return "already closed";
      case errc::bug: return "internal invariant violated";
    }
    return "unknown error";
  }
};
}  // namespace detail

inline const boost::system::error_category& batchweave_category() noexcept {
  static const detail::error_category c;
  return c;
}

inline error_code make_error_code(errc e) noexcept {
  return {static_cast<int>(e), batchweave_category()};
}

/// Whether the effect of a failed operation can have taken place.
enum class fate {
  unknown,         ///< it may have happened, now or later
  did_not_happen,  ///< proven: it has no effect and never will
};

/// One failed operation: code, fate and enough context to act on. Never holds a credential.
class failure {
 public:
  /// Only for boost::system::result, which wants a default.
  failure() : failure(errc::bug, "no failure") {}
  failure(errc code, std::string what) : code_(code), what_(std::move(what)) {}

  failure& with_fate(fate f) & { fate_ = f; return *this; }
  failure&& with_fate(fate f) && { fate_ = f; return std::move(*this); }
  /// Puts "context: " in front of the message; callers add what they know on the way up.
  failure& in(std::string_view context) & {
    what_.insert(0, ": ").insert(0, context);
    return *this;
  }
  failure&& in(std::string_view context) && { in(context); return std::move(*this); }
  failure&& with_status(int status) && { status_ = status; return std::move(*this); }
  failure&& with_request_id(std::string id) && { request_id_ = std::move(id); return std::move(*this); }
  /// The server's own error code ("NoSuchBucket"), or empty.
  failure&& with_server_code(std::string c) && { server_code_ = std::move(c); return std::move(*this); }

  errc code() const noexcept { return code_; }
  error_kind kind() const noexcept { return kind_of(code_); }
  batchweave::fate fate() const noexcept { return fate_; }
  int status() const noexcept { return status_; }
  const std::string& request_id() const noexcept { return request_id_; }
  const std::string& server_code() const noexcept { return server_code_; }
  const std::string& what() const noexcept { return what_; }

 private:
  errc code_;
  batchweave::fate fate_ = batchweave::fate::unknown;
  int status_ = 0;
  std::string what_;
  std::string request_id_;
  std::string server_code_;
};

/// A failure with "context: " in front, whatever the value category of what `result::error()` returns.
inline failure in_context(failure f, std::string_view context) {
  f.in(context);
  return f;
}

/// The exception that every throwing form throws. `code()` is in batchweave_category().
class error : public boost::system::system_error {
 public:
  explicit error(batchweave::failure f)
      : boost::system::system_error(make_error_code(f.code()), f.what()), failure_(std::move(f)) {}
  const batchweave::failure& failure() const noexcept { return failure_; }

 private:
  batchweave::failure failure_;
};

/// A value or a failure. `value()` throws batchweave::error.
template <class T>
using result = boost::system::result<T, failure>;

[[noreturn]] inline void throw_exception_from_error(const failure& f, const boost::source_location&) {
  throw error(f);
}

}  // namespace batchweave

template <>
struct boost::system::is_error_code_enum<batchweave::errc> : std::true_type {};
