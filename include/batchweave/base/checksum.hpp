// XXH3-64 for stored data, CRC32C for uploads over HTTP.
#pragma once

#include <batchweave/base/bytes.hpp>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <boost/crc.hpp>

#include <cstdint>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace batchweave {

/// XXH3-64, the checksum of slices, footers and manifest versions.
inline std::uint64_t xxh3(const_bytes b) noexcept { return XXH3_64bits(b.data(), b.size()); }

namespace detail {
#if defined(__x86_64__)
__attribute__((target("sse4.2"))) inline std::uint32_t crc32c_sse42(std::uint32_t crc, const_bytes b) noexcept {
  auto c = static_cast<std::uint64_t>(crc);
  const std::byte* p = b.data();
  std::size_t n = b.size();
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
