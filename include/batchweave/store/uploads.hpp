// An optional capability of a store: telling what it still holds of uploads that nobody finished, and dropping it.
#pragma once

#include <batchweave/store/store.hpp>

#include <concepts>
#include <string>
#include <utility>
#include <vector>

namespace batchweave {

/// A multipart upload that was begun and neither completed nor aborted.
class open_upload {
 public:
  open_upload() = default;
  open_upload(std::string k, std::string i) : key(std::move(k)), id(std::move(i)) {}
  std::string key;  ///< relative to the store's own prefix
  std::string id;
};

/// - list_uploads(prefix): those of keys that start with `prefix`. Error: not_supported, rejected when the server cannot tell.
/// - abort_upload(upload): frees its parts; one that is gone counts as aborted. Idempotent.
template <class S>
concept lists_uploads = requires(S& s, std::string prefix, open_upload upload) {
  { s.list_uploads(prefix) } -> std::same_as<asio::awaitable<result<std::vector<open_upload>>>>;
  { s.abort_upload(upload) } -> std::same_as<asio::awaitable<result<void>>>;
};

}  // namespace batchweave
