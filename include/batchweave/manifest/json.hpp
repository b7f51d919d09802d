// The manifest codec that people and jq can read.
#pragma once

#include <batchweave/manifest/json_text.hpp>
#include <batchweave/manifest/version.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace batchweave::manifest {

/// One line of JSON; the first member names what it is, the last is a checksum, so an edited manifest does not decode.
struct json {
  static constexpr std::string_view name = "json";
  static constexpr std::uint64_t format = 1;

  static bool recognises(const_bytes b) { return !b.empty() && b[0] == std::byte{'{'}; }

  static std::vector<std::byte> encode(const version& v) {
    const std::string text = detail::sealed_json("manifest", format, v);
    const const_bytes b = as_bytes(text);
    return {b.begin(), b.end()};
  }

  /// Errors: damaged, naming the member; not_supported for a newer format.
  static result<version> decode(const_bytes b) {
    result<version> v = detail::unsealed_json<version>("manifest", format, b);
    if (!v) return v.error();
    if (const result<void> sound = validate(*v); !sound) return in_context(sound.error(), "JSON manifest");
    return v;
  }
};

}  // namespace batchweave::manifest
