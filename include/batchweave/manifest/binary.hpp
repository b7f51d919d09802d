// The compact manifest codec: magic, format, fields as varints, XXH3-64 over all before it.
#pragma once

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/wire.hpp>
#include <batchweave/manifest/fields.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace batchweave::manifest {

namespace detail {

class binary_writer {
 public:
  explicit binary_writer(byte_writer& out) : out_(out) {}
  void operator()(const char*, std::uint64_t v) { out_.varint(v); }
  void operator()(const char*, std::uint32_t v) { out_.varint(v); }
  void operator()(const char*, std::int64_t v) { out_.varint(static_cast<std::uint64_t>(v) << 1 ^ static_cast<std::uint64_t>(v >> 63)); }
  void operator()(const char*, bool v) { out_.u8(v); }
  void operator()(const char*, event_kind v) { out_.u8(static_cast<std::uint8_t>(v)); }
  void operator()(const char*, id128 v) { out_.id(v); }
  void operator()(const char*, const std::string& v) { out_.text(v); }
  template <class T>
  void operator()(const char* name, const std::vector<T>& list) {
    out_.varint(list.size());
    for (const T& x : list) (*this)(name, x);
  }
  template <class T>
  void operator()(const char*, const T& x) {
    describe(*this, x);
  }

 private:
  byte_writer& out_;
};

class binary_reader {
 public:
  explicit binary_reader(byte_reader& in) : in_(in) {}
  /// The first field that could not be read, or empty.
  std::string_view failed() const noexcept { return failed_; }

  void operator()(const char* name, std::uint64_t& v) { v = in_.varint(); note(name); }
  void operator()(const char* name, std::uint32_t& v) {
    const std::uint64_t wide = in_.varint();
    if (wide > std::numeric_limits<std::uint32_t>::max()) in_.fail();
    v = static_cast<std::uint32_t>(wide);
    note(name);
  }
  void operator()(const char* name, std::int64_t& v) {
    const std::uint64_t z = in_.varint();
    v = static_cast<std::int64_t>(z >> 1 ^ (~(z & 1) + 1));
    note(name);
  }
  void operator()(const char* name, bool& v) {
    const std::uint64_t b = in_.fixed(1);
    if (b > 1) in_.fail();
    v = b == 1;
    note(name);
  }
  void operator()(const char* name, event_kind& v) {
    const std::uint64_t k = in_.fixed(1);
    if (k >= std::size(event_names)) in_.fail();
    else v = static_cast<event_kind>(k);
    note(name);
  }
  void operator()(const char* name, id128& v) { v = in_.id(); note(name); }
  void operator()(const char* name, std::string& v) { v = in_.text(); note(name); }
  template <class T>
  void operator()(const char* name, std::vector<T>& list) {
    // Nothing is reserved: a hostile count costs no more memory than the bytes behind it can fill.
    const std::uint64_t n = in_.varint();
    if (n > in_.left()) in_.fail();
    note(name);
    for (std::uint64_t i = 0; i < n && in_.ok(); ++i) {
      T x{};
      (*this)(name, x);
      if (in_.ok()) list.push_back(std::move(x));
    }
  }
  template <class T>
  void operator()(const char*, T& x) {
    if (in_.ok()) describe(*this, x);
  }

 private:
  void note(const char* name) {
    if (!in_.ok() && failed_.empty()) failed_ = name;
  }
  byte_reader& in_;
  std::string_view failed_;
};

}  // namespace detail

/// The default codec.
struct binary {
  static constexpr std::string_view name = "binary";
  static constexpr std::string_view magic = "BWMF";

  static bool recognises(const_bytes b) { return as_text(b.first(std::min(b.size(), magic.size()))) == magic; }
  static constexpr std::uint64_t format = 1;

  static std::vector<std::byte> encode(const version& v) {
    byte_writer out;
    out.raw(as_bytes(magic));
    out.varint(format);
    detail::binary_writer fields(out);
    detail::describe(fields, v);
    out.fixed64(xxh3(out.bytes()));
    return out.take();
  }

  /// Errors: damaged, with what does not hold; not_supported for a newer format.
  static result<version> decode(const_bytes b) {
    const auto damaged = [](std::string why) { return failure(errc::damaged, "binary manifest: " + std::move(why)); };
    if (!recognises(b)) return damaged("the magic is missing");
    byte_reader head(b.subspan(magic.size()));
    const std::uint64_t there = head.varint();
    if (!head.ok() || there == 0) return damaged("the format number is missing");
    if (there > format) return detail::newer_format("binary manifest", there, format);
    if (head.left() < checksum_size) return damaged("the end is missing");
    const const_bytes signed_part = b.first(b.size() - checksum_size);
    byte_reader tail(b.last(checksum_size));
    if (xxh3(signed_part) != tail.fixed(checksum_size)) {
      return damaged("the checksum does not match its " + std::to_string(b.size()) + " bytes");
    }
    byte_reader in(signed_part.last(head.left() - checksum_size));
    version v;
    detail::binary_reader fields(in);
    detail::describe(fields, v);
    if (!in.ok()) return damaged("field '" + std::string(fields.failed()) + "' cannot be read");
    if (in.left() != 0) return damaged(std::to_string(in.left()) + " bytes too many");
    if (const result<void> sound = validate(v); !sound) return in_context(sound.error(), "binary manifest");
    return v;
  }

 private:
  static constexpr std::size_t checksum_size = 8;
};

}  // namespace batchweave::manifest
