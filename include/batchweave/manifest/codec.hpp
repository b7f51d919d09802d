// Manifest codecs: what one is, which there are, and decoding without being told which it was.
#pragma once

#include <batchweave/manifest/binary.hpp>
#include <batchweave/manifest/json.hpp>
#include <batchweave/manifest/version.hpp>

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace batchweave::manifest {

/// decode(encode(v)) == v for every v that validate() accepts; decode rejects everything else without undefined behaviour.
template <class C>
concept manifest_codec = requires(const version& v, const_bytes b) {
  { C::encode(v) } -> std::same_as<std::vector<std::byte>>;
  { C::decode(b) } -> std::same_as<result<version>>;
  { C::name } -> std::convertible_to<std::string_view>;
};
static_assert(manifest_codec<binary> && manifest_codec<json>);

/// A version key with no bytes: the version was reclaimed, its number stays taken.
inline bool is_tombstone(const_bytes b) noexcept { return b.empty(); }

inline bool is_codec(std::string_view name) noexcept { return name == binary::name || name == json::name; }

/// Throws errc::invalid_argument for a codec that is_codec does not know.
inline std::vector<std::byte> encode_version(const version& v, std::string_view codec = binary::name) {
  if (codec == binary::name) return binary::encode(v);
  if (codec == json::name) return json::encode(v);
  throw error(failure(errc::invalid_argument, "manifest codec '" + std::string(codec) + "' is unknown; use binary or json"));
}

/// Recognises the codec by the first bytes. Errors: damaged; not_supported for a newer format.
inline result<version> decode_version(const_bytes b) {
  if (is_tombstone(b)) return failure(errc::damaged, "manifest: the object is empty; the version was reclaimed");
  if (as_text(b.first(1)) == "{") return json::decode(b);
  return binary::decode(b);
}

}  // namespace batchweave::manifest
