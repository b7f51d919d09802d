// Little-endian and varint encoding: an appending writer and a reader that trusts no length.
#pragma once

#include <batchweave/base/bytes.hpp>
#include <batchweave/base/id128.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave {

class byte_writer {
 public:
  void u8(std::uint8_t v) { out_.push_back(static_cast<std::byte>(v)); }
  void fixed64(std::uint64_t v) {
    for (int i = 0; i < 8; ++i) u8(static_cast<std::uint8_t>(v >> (8 * i)));
  }
  void fixed32(std::uint32_t v) {
    for (int i = 0; i < 4; ++i) u8(static_cast<std::uint8_t>(v >> (8 * i)));
  }
  /// LEB128: seven bits a byte, low bits first.
  void varint(std::uint64_t v) {
    for (; v >= 0x80; v >>= 7) u8(static_cast<std::uint8_t>(v | 0x80));
    u8(static_cast<std::uint8_t>(v));
  }
  void raw(const_bytes b) { out_.insert(out_.end(), b.begin(), b.end()); }
  void text(std::string_view s) {
    varint(s.size());
    raw(as_bytes(s));
  }
  void id(id128 v) {
    fixed64(v.hi());
    fixed64(v.lo());
  }
  const_bytes bytes() const noexcept { return {out_.data(), out_.size()}; }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

/// Reads what byte_writer wrote. After the first impossible value `ok()` is false and every further read yields zero.
/// Never allocates more than the bytes that are really there.
class byte_reader {
 public:
  explicit byte_reader(const_bytes b) noexcept : rest_(b) {}

  bool ok() const noexcept { return ok_; }
  void fail() noexcept { ok_ = false; rest_ = const_bytes(); }
  std::size_t left() const noexcept { return rest_.size(); }

  const_bytes raw(std::uint64_t n) {
    if (n > rest_.size()) {
      fail();
      return {};
    }
    const const_bytes r = rest_.first(static_cast<std::size_t>(n));
    rest_ = rest_.subspan(static_cast<std::size_t>(n));
    return r;
  }
  std::uint64_t fixed(unsigned bytes) {
    const const_bytes b = raw(bytes);
    std::uint64_t v = 0;
    for (std::size_t i = 0; i < b.size(); ++i) v |= std::to_integer<std::uint64_t>(b[i]) << (8 * i);
    return v;
  }
  /// Only the shortest form is accepted, so that a value has one encoding.
  std::uint64_t varint() {
    std::uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const const_bytes b = raw(1);
      if (b.empty()) return 0;
      const auto bits = std::to_integer<std::uint64_t>(b[0]);
      if ((shift == 63 && bits > 1) || (shift > 0 && bits == 0)) break;
      v |= (bits & 0x7f) << shift;
      if (bits < 0x80) return v;
    }
    fail();
    return 0;
  }
  std::string text() {
    const const_bytes b = raw(varint());
    return std::string(as_text(b));
  }
  id128 id() {
    const std::uint64_t hi = fixed(8);
    const std::uint64_t lo = fixed(8);
    return {hi, lo};
  }

 private:
  const_bytes rest_;
  bool ok_ = true;
};

}  // namespace batchweave
