// The one table of what a status, an S3 error code or a transport error means. Pure.
#pragma once

#include <batchweave/base/error.hpp>

#include <string_view>

namespace batchweave::s3 {

/// What to do about one failed attempt.
class verdict {
 public:
  constexpr verdict(errc code, batchweave::fate f, bool retryable, bool poisons) noexcept
      : code_(code), fate_(f), retryable_(retryable), poisons_(poisons) {}
  constexpr errc code() const noexcept { return code_; }
  /// Whether a write can have taken effect.
  constexpr batchweave::fate fate() const noexcept { return fate_; }
  /// Whether the same request may succeed later.
  constexpr bool retryable() const noexcept { return retryable_; }
  /// Whether the connection must not be used again.
  constexpr bool poisons() const noexcept { return poisons_; }
  friend constexpr bool operator==(const verdict&, const verdict&) = default;

 private:
  errc code_;
  batchweave::fate fate_;
  bool retryable_, poisons_;
};

namespace detail {
struct answer_row {
  int status;             // 0: any
  std::string_view code;  // empty: any
  verdict is;
};
inline constexpr auto unknown = fate::unknown;
inline constexpr auto refused = fate::did_not_happen;
// The first row that fits counts. Rows with a code come before rows with a status alone.
inline constexpr answer_row answer_table[] = {
    {0, "SlowDown", {errc::throttled, unknown, true, false}},
    {0, "Throttling", {errc::throttled, unknown, true, false}},
    {0, "ThrottlingException", {errc::throttled, unknown, true, false}},
    {0, "RequestLimitExceeded", {errc::throttled, unknown, true, false}},
    {0, "TooManyRequests", {errc::throttled, unknown, true, false}},
    {0, "InternalError", {errc::store_unavailable, unknown, true, false}},
    {0, "ServiceUnavailable", {errc::store_unavailable, unknown, true, false}},
    {0, "RequestTimeout", {errc::store_unavailable, unknown, true, true}},
    {0, "OperationAborted", {errc::store_unavailable, unknown, true, false}},
    {0, "ConditionalRequestConflict", {errc::store_unavailable, unknown, true, false}},
    {0, "IncompleteBody", {errc::body_truncated, refused, true, true}},
    {0, "BadDigest", {errc::damaged, refused, true, false}},
    {0, "XAmzContentSHA256Mismatch", {errc::damaged, refused, true, false}},
    {0, "XAmzContentChecksumMismatch", {errc::damaged, refused, true, false}},
    {0, "RequestTimeTooSkewed", {errc::clock_skewed, refused, false, false}},
    {0, "ExpiredToken", {errc::access_denied, refused, false, false}},
    {0, "ExpiredTokenException", {errc::access_denied, refused, false, false}},
    {0, "TokenRefreshRequired", {errc::access_denied, refused, false, false}},
    {0, "IDPCommunicationError", {errc::store_unavailable, refused, true, false}},
    {0, "InvalidToken", {errc::access_denied, refused, false, false}},
    {0, "NoSuchBucket", {errc::bucket_missing, refused, false, false}},
    {0, "NoSuchKey", {errc::object_missing, refused, false, false}},
    {0, "NotImplemented", {errc::not_supported, refused, false, false}},
    {401, "", {errc::access_denied, refused, false, false}},
    {403, "", {errc::access_denied, refused, false, false}},
    {404, "XAdminUserNotFound", {errc::access_denied, refused, false, false}},
    {404, "", {errc::rejected, refused, false, false}},
    {408, "", {errc::store_unavailable, unknown, true, true}},
    {409, "", {errc::rejected, refused, false, false}},
    {412, "", {errc::rejected, refused, false, false}},
    {429, "", {errc::throttled, unknown, true, false}},
    {500, "", {errc::store_unavailable, unknown, true, false}},
    {501, "", {errc::not_supported, unknown, false, false}},
    {502, "", {errc::store_unavailable, unknown, true, true}},
    {503, "", {errc::store_unavailable, unknown, true, false}},
    {504, "", {errc::store_unavailable, unknown, true, true}},
};

struct transport_row {
  errc code;
  bool before_request;  // it can only come before the first byte of the request was sent
  bool retryable;
};
inline constexpr transport_row transport_table[] = {
    {errc::resolve_failed, true, true},        {errc::connect_failed, true, true},     {errc::connect_timeout, true, true},
    {errc::tls_failed, true, false},           {errc::tls_timeout, true, true},        {errc::first_byte_timeout, false, true},
    {errc::stalled, false, true},              {errc::connection_lost, false, true},   {errc::body_truncated, false, true},
    {errc::bad_response, false, true},         {errc::overall_timeout, false, false},
    {errc::store_unavailable, true, true},     {errc::throttled, true, true},  // of a service that hands out keys
};
}  // namespace detail

/// An answer of the store that is not success. `code` may be empty: HEAD has no body.
/// Source: Amazon S3 API reference, "Error responses", and the rules about what can have been applied (a 5xx says nothing).
constexpr verdict classify_answer(int status, std::string_view code) noexcept {
  for (const auto& row : detail::answer_table) {
    if ((row.status == 0 || row.status == status) && (row.code.empty() || row.code == code)) return row.is;
  }
  if (status >= 500) return verdict(errc::store_unavailable, fate::unknown, true, false);
  if (status >= 400) return verdict(errc::rejected, fate::did_not_happen, false, false);
  if (status >= 300) return verdict(errc::bad_response, fate::did_not_happen, false, false);
  return verdict(errc::bad_response, fate::unknown, true, true);
}

/// A transport error. `request_started`: a byte of the request may have reached the peer. Every one poisons the connection.
constexpr verdict classify_transport(errc code, bool request_started) noexcept {
  for (const auto& row : detail::transport_table) {
    if (row.code == code) {
      return verdict(code, row.before_request || !request_started ? fate::did_not_happen : fate::unknown, row.retryable, true);
    }
  }
  return verdict(code, request_started ? fate::unknown : fate::did_not_happen, false, true);
}

}  // namespace batchweave::s3
