// Which keys every store takes.
#pragma once

#include <batchweave/base/error.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace batchweave::detail {

inline constexpr std::size_t max_key_size = 1024;  // the limit of S3, so that a stream can move between stores

/// Why `key` is no key, or nullopt. `store` is only for the message.
inline std::optional<failure> check_key(std::string_view store, std::string_view key) {
  const auto wrong = [&](std::string_view why) {
    return failure(errc::invalid_argument, std::string(store) + ": " + std::string(why)).with_fate(fate::did_not_happen);
  };
  if (key.empty()) return wrong("the key is empty");
  if (key.size() > max_key_size) {
    return wrong("the key of " + std::to_string(key.size()) + " bytes is longer than " + std::to_string(max_key_size));
  }
  for (const char c : key) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return wrong("the key holds a control character");
  }
  return std::nullopt;
}

}  // namespace batchweave::detail
