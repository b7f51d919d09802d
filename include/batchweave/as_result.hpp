// The error_code form of every role operation: a failure as a value instead of an exception.
#pragma once

#include <batchweave/base/error.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>

#include <type_traits>
#include <utility>

namespace batchweave {

/// Awaits `op` and turns batchweave::error and cancellation into a failure. Other exceptions pass.
template <class T>
asio::awaitable<result<T>> as_result(asio::awaitable<T> op) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(op);
      co_return result<void>();
    } else {
      co_return co_await std::move(op);
    }
  } catch (const error& e) {
    co_return e.failure();
  } catch (const boost::system::system_error& e) {
    if (e.code() != asio::error::operation_aborted) throw;
    co_return failure(errc::cancelled, "cancelled by the caller");
  }
}

}  // namespace batchweave
