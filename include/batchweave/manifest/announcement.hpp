// The announcement of a durable TGB that waits for a commit, as a key and, when it does not fit there, a body.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/hex.hpp>
#include <batchweave/base/wire.hpp>
#include <batchweave/manifest/binary.hpp>
#include <batchweave/manifest/naming.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::manifest {

namespace detail {
inline constexpr std::size_t announcement_key_limit = 160;  // hexadecimal digits; file systems end a name at 255 bytes
}  // namespace detail

/// What the key does not say of `e`, sealed with a checksum.
inline std::vector<std::byte> encode_announcement(const tgb_entry& e) {
  tgb_entry rest = e;
  rest.producer.clear();
  rest.epoch = rest.seq = 0;
  byte_writer out;
  detail::binary_writer fields(out);
  detail::describe(fields, static_cast<const tgb_entry&>(rest));
  out.fixed32(static_cast<std::uint32_t>(xxh3(out.bytes())));
  return out.take();
}

/// The TGB that `name` and `body` announce. Error: damaged.
inline result<tgb_entry> decode_announcement(const batch_name& name, const_bytes body) {
  const auto damaged = [&](std::string_view why) {
    return failure(errc::damaged, "announcement of batch " + std::to_string(name.seq) + " of producer " + name.producer + ": " +
                                      std::string(why));
  };
  if (body.size() < 4) return damaged("it is too short");
  byte_reader tail(body.last(4));
  const const_bytes sealed = body.first(body.size() - 4);
  if (static_cast<std::uint32_t>(xxh3(sealed)) != tail.fixed(4)) return damaged("the checksum does not match");
  byte_reader in(sealed);
  tgb_entry e;
  detail::binary_reader fields(in);
  detail::describe(fields, e);
  if (!in.ok() || in.left() != 0) return damaged("a field cannot be read");
  if (const result<void> sound = e.layout.check(); !sound) return damaged(sound.error().what());
  if (e.parts < 1 || e.footer_offset > e.bytes || e.layout.data_end() > e.footer_offset) return damaged("the slices reach beyond the object");
  e.producer = name.producer;
  e.epoch = name.epoch;
  e.seq = name.seq;
  return e;
}

/// Where to announce `e`: the key holds all of it when it fits, so that one LIST reads a thousand announcements; else the body does.
class announcement {
 public:
  explicit announcement(const tgb_entry& e) {
    std::vector<std::byte> bytes = encode_announcement(e);
    key = inbox_key(e.producer, e.epoch, e.seq);
    if (2 * bytes.size() <= detail::announcement_key_limit) key += "." + to_hex({bytes.data(), bytes.size()});
    else body = std::move(bytes);
  }
  std::string key;
  std::vector<std::byte> body;
};

/// The TGB that `key` holds by itself; nullopt when the body has it, or the key is not one of ours.
inline std::optional<tgb_entry> parse_announcement(std::string_view key) {
  const auto name = parse_inbox_key(key);
  const std::size_t dot = key.rfind('.');
  if (!name || dot == std::string_view::npos || dot < key.rfind('/')) return std::nullopt;
  const auto bytes = from_hex(key.substr(dot + 1));
  if (!bytes) return std::nullopt;
  result<tgb_entry> e = decode_announcement(*name, {bytes->data(), bytes->size()});
  if (!e) return std::nullopt;
  return std::move(*e);
}

}  // namespace batchweave::manifest
