// The footer of a TGB object: whose batch it is, the producer state committed with it, the slice table; and its trailer.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/error.hpp>
#include <batchweave/base/id128.hpp>
#include <batchweave/base/wire.hpp>
#include <batchweave/tgb/layout.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::tgb {

inline constexpr std::string_view magic = "BWTG";
inline constexpr std::uint32_t format = 1;
/// Footer length (8), format (4), magic (4).
inline constexpr std::size_t trailer_bytes = 16;

class footer {
 public:
  footer() = default;
  id128 stream_id;
  std::string producer;
  std::uint64_t epoch = 0;
  std::uint64_t seq = 0;
  std::string state;     ///< producer state, opaque
  std::string metadata;  ///< of the user, opaque
  slice_layout layout;
};

namespace detail {
inline void write_layout(byte_writer& w, const slice_layout& l) {
  w.varint(l.count);
  w.varint(l.alignment);
  w.u8(l.sizes.empty() ? 0 : 1);
  if (l.sizes.empty()) w.varint(l.fixed_size);
  for (std::uint64_t s : l.sizes) w.varint(s);
}
inline slice_layout read_layout(byte_reader& r) {
  slice_layout l;
  const std::uint64_t count = r.varint();
  const std::uint64_t alignment = r.varint();
  l.count = static_cast<std::uint32_t>(count);
  l.alignment = alignment > (1u << 20) || count > 65536 ? 0 : static_cast<std::uint32_t>(alignment);  // 0 fails check()
  if (r.fixed(1) == 0) {
    l.fixed_size = r.varint();
  } else if (l.count <= r.left()) {
    l.sizes.reserve(l.count);
    for (std::uint32_t i = 0; i < l.count; ++i) l.sizes.push_back(r.varint());
  } else {
    l.alignment = 0;
  }
  return l;
}
}  // namespace detail

/// Footer, its checksum, trailer: the tail of the object.
inline std::vector<std::byte> encode_footer(const footer& f) {
  byte_writer w;
  w.id(f.stream_id);
  w.text(f.producer);
  w.varint(f.epoch);
  w.varint(f.seq);
  w.text(f.state);
  w.text(f.metadata);
  detail::write_layout(w, f.layout);
  w.fixed64(xxh3(w.bytes()));
  const std::uint64_t length = w.bytes().size();
  w.fixed64(length);
  w.fixed32(format);
  w.raw(as_bytes(magic));
  return w.take();
}

/// Reads the tail of an object that starts at its footer. Error: damaged, with what is wrong.
inline result<footer> read_footer(const_bytes tail) {
  const auto bad = [](std::string why) { return failure(errc::damaged, "TGB footer: " + std::move(why)); };
  if (tail.size() < trailer_bytes + checksum_bytes) return bad("only " + std::to_string(tail.size()) + " bytes");
  byte_reader trailer(tail.last(trailer_bytes));
  const std::uint64_t length = trailer.fixed(8);
  const std::uint32_t written = static_cast<std::uint32_t>(trailer.fixed(4));
  if (as_text(tail.last(magic.size())) != magic) return bad("the object does not end in the TGB magic");
  if (written > format) return bad("format " + std::to_string(written) + " was written by a newer batchweave");
  if (written != format) return bad("unknown format " + std::to_string(written));
  if (length != tail.size() - trailer_bytes) return bad("length " + std::to_string(length) + " does not fit");
  const const_bytes body = tail.first(static_cast<std::size_t>(length) - checksum_bytes);
  byte_reader sum(tail.subspan(body.size(), checksum_bytes));
  if (sum.fixed(8) != xxh3(body)) return bad("checksum mismatch");
  byte_reader r(body);
  footer f;
  f.stream_id = r.id();
  f.producer = r.text();
  f.epoch = r.varint();
  f.seq = r.varint();
  f.state = r.text();
  f.metadata = r.text();
  f.layout = detail::read_layout(r);
  if (!r.ok() || r.left() != 0) return bad("malformed");
  const result<void> usable = f.layout.check();
  if (!usable) return usable.error();
  return f;
}

}  // namespace batchweave::tgb
