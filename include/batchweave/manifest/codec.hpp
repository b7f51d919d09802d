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
/// `recognises` looks at the first bytes only and is true for what this codec wrote. `name` lies in the stream's description.
template <class C>
concept manifest_codec = requires(const version& v, const_bytes b) {
  { C::encode(v) } -> std::same_as<std::vector<std::byte>>;
  { C::decode(b) } -> std::same_as<result<version>>;
  { C::recognises(b) } -> std::same_as<bool>;
  { C::name } -> std::convertible_to<std::string_view>;
};
static_assert(manifest_codec<binary> && manifest_codec<json>);

/// A version key with no bytes: the version was reclaimed, its number stays taken.
inline bool is_tombstone(const_bytes b) noexcept { return b.empty(); }

/// The codecs that a role knows: it writes with the one that the stream names and reads with the one that recognises the bytes.
/// Add one's own in front: `codec_set<mine, binary, json>`.
template <manifest_codec... Known>
class codec_set {
 public:
  codec_set() = default;
  static bool knows(std::string_view name) noexcept { return ((name == Known::name) || ...); }
  static std::string names() {
    std::string all;
    ((all += (all.empty() ? "" : ", ") + std::string(Known::name)), ...);
    return all;
  }
  /// Throws errc::invalid_argument for a codec that is not in the set.
  static std::vector<std::byte> encode(const version& v, std::string_view name) {
    std::vector<std::byte> out;
    const bool known = ((name == Known::name && (out = Known::encode(v), true)) || ...);
    if (!known) throw error(failure(errc::invalid_argument, "manifest codec '" + std::string(name) + "' is unknown; use " + names()));
    return out;
  }
  /// Errors: damaged; not_supported for a newer format.
  static result<version> decode(const_bytes b) {
    if (is_tombstone(b)) return failure(errc::damaged, "manifest: the object is empty; the version was reclaimed");
    result<version> out = failure(errc::damaged, "manifest: no codec recognises the bytes (known: " + names() + ")");
    static_cast<void>(((Known::recognises(b) && (out = Known::decode(b), true)) || ...));
    return out;
  }
};
using builtin_codecs = codec_set<binary, json>;

inline std::vector<std::byte> encode_version(const version& v, std::string_view codec = binary::name) {
  return builtin_codecs::encode(v, codec);
}
inline result<version> decode_version(const_bytes b) { return builtin_codecs::decode(b); }

}  // namespace batchweave::manifest
