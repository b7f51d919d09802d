// Manifest versions and the stream's description, binary and JSON: damage is refused, and what decodes encodes to something equal.
#include "fuzz.hpp"

#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/stream_info.hpp>

#include <string>
#include <vector>

namespace bw = batchweave;
namespace m = batchweave::manifest;

namespace {

void decode(bw::const_bytes b) {
  const auto v = m::decode_version(b);
  if (!v) return;
  fuzz::require(m::validate(*v).has_value(), "what decodes is valid");
  for (const auto codec : {m::binary::name, m::json::name}) {
    const auto again = m::decode_version(m::encode_version(*v, codec));
    fuzz::require(again && *again == *v, "a version that decodes survives both codecs");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const bw::const_bytes whole = std::as_bytes(std::span(data, size));
  decode(whole);
  if (const auto info = m::decode_stream_info(whole)) {
    const std::string text = m::encode_stream_info(*info);
    fuzz::require(m::decode_stream_info(bw::as_bytes(text)).has_value(), "a description that decodes survives");
  }
  if (size == 0) return 0;
  // The checksum at the end keeps random damage out: made right again, damage reaches the fields.
  const std::string_view text = fuzz::text_of(data, size);
  if (text[0] == '{') {
    const std::size_t seal = m::detail::json_seal.size() + 16 + m::detail::json_seal_end.size();
    std::string body(text.size() > seal && text.substr(text.size() - seal).starts_with(m::detail::json_seal) ? text.substr(0, text.size() - seal) : text);
    const auto sum = bw::xxh3(bw::as_bytes(body));
    body.append(m::detail::json_seal).append(m::detail::hex16(sum)).append(m::detail::json_seal_end);
    decode(bw::as_bytes(body));
    if (const auto info = m::decode_stream_info(bw::as_bytes(body))) m::encode_stream_info(*info);
  } else if (size > 8) {
    bw::byte_writer w;
    w.raw(whole.first(size - 8));
    w.fixed64(bw::xxh3(w.bytes()));
    decode(w.bytes());
  }
  return 0;
}
