// XXH3-64 for stored data, CRC32C for uploads over HTTP.
#pragma once

#include <batchweave/base/bytes.hpp>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <boost/crc.hpp>

#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace batchweave {

/// XXH3-64, the checksum of slices, footers and manifest versions.
inline std::uint64_t xxh3(const_bytes b) noexcept { return XXH3_64bits(b.data(), b.size()); }

namespace detail {
#if defined(__x86_64__)
/// What `lane` zero bytes make of a CRC32C register, as a table: lets registers of neighbouring lanes be combined.
class crc32c_shift {
 public:
  static constexpr std::size_t lane = 4096;
  constexpr crc32c_shift() : table_{} {
    // One zero bit as a matrix (columns: images of the single bits), squared up to 8 * lane zero bits.
    std::array<std::uint32_t, 32> m{};
    m[0] = 0x82f63b78u;  // Castagnoli, reflected
    for (unsigned i = 1; i < 32; ++i) m[i] = 1u << (i - 1);
    for (std::size_t bits = 1; bits < 8 * lane; bits *= 2) {
      std::array<std::uint32_t, 32> square{};
      for (unsigned i = 0; i < 32; ++i) square[i] = times(m, m[i]);
      m = square;
    }
    for (unsigned k = 0; k < 4; ++k) {
      for (std::uint32_t v = 0; v < 256; ++v) table_[k][v] = times(m, v << (8 * k));
    }
  }
  constexpr std::uint32_t operator()(std::uint32_t crc) const noexcept {
    return table_[0][crc & 255] ^ table_[1][crc >> 8 & 255] ^ table_[2][crc >> 16 & 255] ^ table_[3][crc >> 24];
  }

 private:
  static constexpr std::uint32_t times(const std::array<std::uint32_t, 32>& m, std::uint32_t v) {
    std::uint32_t r = 0;
    for (unsigned i = 0; v != 0; ++i, v >>= 1) {
      if (v & 1) r ^= m[i];
    }
    return r;
  }
  std::array<std::array<std::uint32_t, 256>, 4> table_;
};

__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_sse42(std::uint32_t crc, const_bytes b) noexcept {
  auto c = static_cast<std::uint64_t>(crc);
  const std::byte* p = b.data();
  std::size_t n = b.size();
  // The instruction takes three cycles but starts every cycle: three lanes at once.
  static constexpr crc32c_shift shift;
  constexpr std::size_t lane = crc32c_shift::lane;
  for (; n >= 3 * lane; p += 3 * lane, n -= 3 * lane) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < lane; i += 8) {
      std::uint64_t w[3];
      std::memcpy(&w[0], p + i, 8);
      std::memcpy(&w[1], p + lane + i, 8);
      std::memcpy(&w[2], p + 2 * lane + i, 8);
      c = _mm_crc32_u64(c, w[0]);
      second = _mm_crc32_u64(second, w[1]);
      third = _mm_crc32_u64(third, w[2]);
    }
    c = shift(shift(static_cast<std::uint32_t>(c)) ^ static_cast<std::uint32_t>(second)) ^ third;
  }
  for (; n >= 8; p += 8, n -= 8) {
    std::uint64_t w;
    std::memcpy(&w, p, 8);
    c = _mm_crc32_u64(c, w);
  }
  auto r = static_cast<std::uint32_t>(c);
  for (; n; ++p, --n) r = _mm_crc32_u8(r, static_cast<unsigned char>(*p));
  return r;
}
#endif
}  // namespace detail

/// CRC32C (Castagnoli, RFC 3720 B.4) over pieces; in hardware where the processor has it.
class crc32c {
 public:
  void update(const_bytes b) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
      hard_ = detail::crc32c_sse42(hard_, b);
      return;
    }
#endif
    soft_.process_bytes(b.data(), b.size());
  }
  std::uint32_t value() const {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~hard_;
#endif
    return soft_.checksum();
  }

 private:
#if defined(__x86_64__)
  std::uint32_t hard_ = 0xffffffffu;
#endif
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> soft_;
};

}  // namespace batchweave
