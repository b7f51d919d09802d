// CRC32C against published values and against a bit-by-bit implementation, over every way the lanes of the fast one can be cut.
#include "support/catch.hpp"

#include <batchweave/base/checksum.hpp>
#include <batchweave/base/random.hpp>

#include <string>
#include <vector>

namespace bw = batchweave;

namespace {

std::uint32_t slow(bw::const_bytes b) {
  std::uint32_t crc = 0xffffffffu;
  for (const std::byte x : b) {
    crc ^= static_cast<std::uint32_t>(x);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::uint32_t fast(bw::const_bytes b) {
  bw::crc32c sum;
  sum.update(b);
  return sum.value();
}

}  // namespace

TEST_CASE("CRC32C gives the published values") {
  CHECK(fast(bw::as_bytes("123456789")) == 0xe3069283u);
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});  // RFC 3720, B.4
  CHECK(fast(zeros) == 0x8a9136aau);
  CHECK(fast(ones) == 0x62a8ab43u);
  CHECK(fast({}) == 0u);
}

TEST_CASE("CRC32C is the same however long the piece and wherever it is cut") {
  bw::random64 random(5);
  std::vector<std::byte> data(60000);
  for (auto& b : data) b = static_cast<std::byte>(random());
  const bw::const_bytes all(data);
  for (const std::size_t size : {1u, 7u, 8u, 9u, 4096u, 12287u, 12288u, 12289u, 24575u, 24576u, 24577u, 36871u, 59990u}) {
    const std::size_t start = random() % 8;  // not aligned either
    const bw::const_bytes piece = all.subspan(start, size);
    const std::uint32_t right = slow(piece);
    INFO("size " << size << ", start " << start);
    CHECK(fast(piece) == right);
    const std::size_t cut = random() % size;
    bw::crc32c parts;
    parts.update(piece.first(cut));
    parts.update(piece.subspan(cut));
    CHECK(parts.value() == right);
  }
}
