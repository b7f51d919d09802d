// Index segments: round trips block by block, and damage of every byte.
#include "support/catch.hpp"
#include "support/seed.hpp"

#include <batchweave/base/random.hpp>
#include <batchweave/manifest/segment.hpp>

#include <string>
#include <vector>

namespace bw = batchweave;
namespace m = batchweave::manifest;

namespace {

std::vector<m::tgb_entry> random_entries(bw::random64& r, std::size_t n) {
  std::vector<m::tgb_entry> all;
  std::uint64_t next_seq[3] = {5, 0, 1000};
  std::uint64_t epoch[3] = {1, 2, 3};
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t p = r() % 3;
    if (r() % 100 == 0) ++epoch[p];
    m::tgb_entry e;
    e.producer = "p" + std::to_string(p);
    e.epoch = epoch[p];
    e.seq = next_seq[p]++;
    e.layout.count = 3;
    e.layout.alignment = 8;
    if (r() % 2) e.layout.fixed_size = r() % 1000;
    else e.layout.sizes = {r() % 100, r() % 100, r() % 100};
    e.footer_offset = e.layout.data_end();
    e.bytes = e.footer_offset + r() % 100;
    e.samples = r() % 7;
    e.tag = std::string(r() % 4, 'x');
    all.push_back(std::move(e));
  }
  return all;
}

bw::const_bytes bytes_of(const std::vector<std::byte>& v) { return {v.data(), v.size()}; }

// Everything in a segment, or why not.
bw::result<std::vector<m::tgb_entry>> read(bw::const_bytes object, m::segment_index* out = nullptr) {
  const auto head = m::segment_head_bytes(object);
  if (!head) return head.error();
  if (*head > object.size()) return bw::failure(bw::errc::damaged, "cut");
  const auto index = m::decode_segment_index(object.first(*head), object.size());
  if (!index) return index.error();
  std::vector<m::tgb_entry> all;
  for (std::size_t b = 0; b < index->blocks.size(); ++b) {
    auto block = m::decode_segment_block(*index, b, object.subspan(*head + index->blocks[b].offset, index->blocks[b].bytes));
    if (!block) return block.error();
    all.insert(all.end(), block->begin(), block->end());
  }
  if (out) *out = *index;
  return all;
}

}  // namespace

TEST_CASE("a segment gives back its entries, block by block, and tells what it holds of each producer") {
  bw::random64 r(test::seed());
  for (const std::size_t n : {1u, 511u, 512u, 513u, 3000u}) {
    const auto entries = random_entries(r, n);
    const auto object = m::encode_segment(bw::id128(1, 2), 70, entries);
    m::segment_index index;
    const auto back = read(bytes_of(object), &index);
    if (!back) FAIL(back.error().what());
    CHECK(*back == entries);
    CHECK(index.first == 70);
    CHECK(index.end == 70 + n);
    CHECK(index.stream_id == bw::id128(1, 2));
    for (std::uint64_t step = index.first; step < index.end; ++step) {
      const std::size_t b = index.block_of(step);
      REQUIRE((index.first_of(b) <= step && step < index.end_of(b)));
    }
    std::uint64_t held = 0;
    for (const m::seq_run& run : index.runs) held += run.end_seq - run.first_seq;
    CHECK(held == n);
    for (const m::tgb_entry& e : entries) {
      int holds = 0;
      for (const m::seq_run& run : index.runs) {
        holds += run.producer == e.producer && run.epoch == e.epoch && run.first_seq <= e.seq && e.seq < run.end_seq;
      }
      REQUIRE(holds == 1);
    }
  }
}

TEST_CASE("every flipped byte, every truncation and every appended byte of a segment is noticed") {
  bw::random64 r(5);
  const auto entries = random_entries(r, 20);
  const auto object = m::encode_segment(bw::id128(1, 2), 0, entries);
  for (std::size_t i = 0; i < object.size(); ++i) {
    for (const unsigned mask : {1u, 0x80u, 0xffu}) {
      auto bad = object;
      bad[i] ^= static_cast<std::byte>(mask);
      const auto got = read(bytes_of(bad));
      if (got) FAIL("byte " << i << " flipped by " << mask << " was accepted");
    }
    const std::vector<std::byte> cut(object.begin(), object.begin() + static_cast<std::ptrdiff_t>(i));
    if (read(bytes_of(cut))) FAIL("the first " << i << " bytes were accepted");
  }
  auto longer = object;
  longer.push_back(std::byte{0});
  CHECK_FALSE(read(bytes_of(longer)).has_value());
}

TEST_CASE("hostile segments under valid checksums neither crash nor allocate beyond their size") {
  bw::random64 r(test::seed());
  const auto object = m::encode_segment(bw::id128(1, 2), 0, random_entries(r, 20));
  const std::uint64_t head = *m::segment_head_bytes(bytes_of(object));
  for (int i = 0; i < 5000; ++i) {
    auto bad = object;
    for (std::uint64_t n = r() % 4 + 1; n > 0; --n) bad[16 + r() % (head - 24)] = static_cast<std::byte>(r() % 3 ? r() : 0xff);
    bw::byte_writer sum;
    sum.fixed64(bw::xxh3(bytes_of(bad).first(head - 8)));
    std::copy(sum.bytes().begin(), sum.bytes().end(), bad.begin() + static_cast<std::ptrdiff_t>(head - 8));
    static_cast<void>(read(bytes_of(bad)));
  }
  SUCCEED("none did");
}
