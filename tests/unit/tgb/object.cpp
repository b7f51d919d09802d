// A TGB as bytes: layout arithmetic, what a rank reads of it, and every kind of damage to its footer and slices.
#include "support/catch.hpp"
#include "support/seed.hpp"

#include <batchweave/base/random.hpp>
#include <batchweave/tgb/reader.hpp>
#include <batchweave/tgb/writer.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace bw = batchweave;
namespace tgb = batchweave::tgb;

namespace {

/// Whether a result holds a value; results do not print themselves.
template <class R>
bool good(const R& r) {
  return r.has_value();
}

std::vector<std::byte> joined(const bw::const_buffers& pieces) {
  std::vector<std::byte> all;
  for (const bw::const_bytes p : pieces) all.insert(all.end(), p.begin(), p.end());
  return all;
}

std::vector<bw::const_bytes> views(const std::vector<std::string>& slices) {
  std::vector<bw::const_bytes> v;
  for (const std::string& s : slices) v.push_back(bw::as_bytes(s));
  return v;
}

tgb::footer some_footer() {
  tgb::footer f;
  f.stream_id = bw::id128(1, 2);
  f.producer = "p";
  f.epoch = 3;
  f.seq = 4;
  f.state = std::string("state\0\xff", 7);
  f.metadata = "meta";
  return f;
}

/// What rank `rank` of `world` gets from `object`, as one string for each slice.
std::vector<std::string> read(const std::vector<std::byte>& object, const tgb::slice_layout& layout, std::uint32_t rank,
                              std::uint32_t world) {
  const auto plan = tgb::plan_read(layout, rank, world);
  REQUIRE(good(plan));
  std::vector<std::byte> data(plan->slice_bytes()), side(plan->side_bytes());
  const bw::mutable_buffers into = plan->scatter(data, side);
  REQUIRE(bw::total_size(into) == plan->range_length());
  REQUIRE(plan->range_offset() + plan->range_length() <= object.size());
  std::size_t at = static_cast<std::size_t>(plan->range_offset());
  for (const bw::mutable_bytes b : into) {
    std::copy_n(object.begin() + static_cast<std::ptrdiff_t>(at), b.size(), b.begin());
    at += b.size();
  }
  const auto checked = plan->verify(data, side);
  if (!checked) FAIL(checked.error().what());
  std::vector<std::string> out;
  std::size_t from = 0;
  for (const std::size_t n : plan->slice_sizes()) {
    out.push_back(std::string(bw::as_text(bw::const_bytes(data).subspan(from, n))));
    from += n;
  }
  return out;
}

}  // namespace

TEST_CASE("layout arithmetic of fixed, variable and empty slices") {
  tgb::slice_layout fixed;
  fixed.count = 3;
  fixed.alignment = 16;
  fixed.fixed_size = 10;
  CHECK(fixed.offset(0) == 0);
  CHECK(fixed.offset(1) == 32);
  CHECK(fixed.end(1) == 50);
  CHECK(fixed.data_end() == 64 + 18);

  tgb::slice_layout variable;
  variable.count = 4;
  variable.alignment = 1;
  variable.sizes = {0, 5, 0, 7};
  CHECK(variable.offset(1) == 8);
  CHECK(variable.offset(2) == 21);
  CHECK(variable.offset(3) == 29);
  CHECK(variable.data_end() == 44);

  tgb::slice_layout none;
  CHECK(none.data_end() == 0);
}

TEST_CASE("every rank of every world size reads exactly its slices") {
  const std::uint64_t seed = test::seed();
  INFO("seed " << seed);
  bw::random64 r(seed);
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t count = static_cast<std::uint32_t>(r() % 12 + 1);
    const bool fixed = r() % 2;
    const std::size_t one = r() % 3 ? r() % 300 : 0;
    std::vector<std::string> slices(count);
    for (std::string& s : slices) {
      s.resize(fixed ? one : r() % 3 * (r() % 100));
      for (char& c : s) c = static_cast<char>(r());
    }
    const std::uint32_t alignment = 1u << (r() % 13);
    const auto parts = views(slices);
    const auto object = tgb::write(parts, some_footer(), alignment);
    REQUIRE(good(object));
    const auto bytes = joined(object->pieces());
    REQUIRE(object->footer_offset() == object->layout().data_end());
    for (std::uint32_t i = 0; i < count; ++i) REQUIRE(object->layout().offset(i) % alignment == 0);
    for (std::uint32_t world = 1; world <= count; ++world) {
      if (count % world) continue;
      std::vector<std::string> all;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        for (std::string& s : read(bytes, object->layout(), rank, world)) all.push_back(std::move(s));
      }
      REQUIRE(all == slices);
    }
    const auto footer = tgb::read_footer(bw::const_bytes(bytes).subspan(static_cast<std::size_t>(object->footer_offset())));
    REQUIRE(good(footer));
    CHECK(footer->layout == object->layout());
    CHECK(footer->state == some_footer().state);
    CHECK(footer->metadata == "meta");
    CHECK(footer->producer == "p");
    CHECK(footer->stream_id == bw::id128(1, 2));
    CHECK(footer->epoch == 3);
    CHECK(footer->seq == 4);
  }
}

TEST_CASE("slices are referred to, never copied") {
  const std::vector<std::string> slices{std::string(1000, 'a'), std::string(1000, 'b')};
  const auto parts = views(slices);
  const auto object = tgb::write(parts, some_footer(), 64);
  REQUIRE(good(object));
  for (const bw::const_bytes s : parts) {
    bool there = false;
    for (const bw::const_bytes p : object->pieces()) there = there || (p.data() == s.data() && p.size() == s.size());
    CHECK(there);
  }
}

TEST_CASE("the cost of reading one rank's share is at most 2 percent over its bytes") {
  const std::vector<std::string> slices(8, std::string(4096, 'x'));
  const auto object = tgb::write(views(slices), some_footer(), 8);
  REQUIRE(good(object));
  for (const std::uint32_t world : {1u, 2u, 8u}) {
    const auto plan = tgb::plan_read(object->layout(), 0, world);
    REQUIRE(good(plan));
    CHECK(static_cast<double>(plan->range_length()) <= 1.02 * static_cast<double>(plan->slice_bytes()));
  }
}

TEST_CASE("every flipped byte of slices and checksums is found, with the slice's number") {
  const std::vector<std::string> slices{"first", "", "third slice"};
  const auto object = tgb::write(views(slices), some_footer(), 1);
  REQUIRE(good(object));
  const auto bytes = joined(object->pieces());
  const auto plan = tgb::plan_read(object->layout(), 0, 1);
  REQUIRE(good(plan));
  for (std::size_t i = 0; i < plan->range_length(); ++i) {
    auto bad = bytes;
    bad[i] ^= std::byte{0x10};
    std::vector<std::byte> data(plan->slice_bytes()), side(plan->side_bytes());
    std::size_t at = 0;
    for (const bw::mutable_bytes b : plan->scatter(data, side)) {
      std::copy_n(bad.begin() + static_cast<std::ptrdiff_t>(at), b.size(), b.begin());
      at += b.size();
    }
    const auto got = plan->verify(data, side);
    REQUIRE_FALSE(good(got));
    CHECK(got.error().code() == bw::errc::damaged);
    const std::uint32_t slice = i < object->layout().end(0) ? 0 : i < object->layout().end(1) ? 1 : 2;
    CHECK(got.error().what().find("slice " + std::to_string(slice)) != std::string::npos);
  }
}

TEST_CASE("every flipped byte and every truncation of a footer is rejected") {
  const std::vector<std::string> slices{"one", "three"};
  const auto object = tgb::write(views(slices), some_footer(), 8);
  REQUIRE(good(object));
  const auto bytes = joined(object->pieces());
  const std::vector<std::byte> tail(bytes.begin() + static_cast<std::ptrdiff_t>(object->footer_offset()), bytes.end());
  REQUIRE(good(tgb::read_footer(tail)));
  for (std::size_t i = 0; i < tail.size(); ++i) {
    for (const unsigned mask : {1u, 0x80u, 0xffu}) {
      auto bad = tail;
      bad[i] ^= static_cast<std::byte>(mask);
      if (tgb::read_footer(bad)) FAIL("byte " << i << " flipped by " << mask << " was accepted");
    }
    const std::vector<std::byte> head(tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(i));
    if (tgb::read_footer(head)) FAIL("the first " << i << " bytes were accepted");
    const std::vector<std::byte> rest(tail.begin() + static_cast<std::ptrdiff_t>(i + 1), tail.end());
    if (tgb::read_footer(rest)) FAIL("the last " << rest.size() << " bytes were accepted");
  }
}

TEST_CASE("the bytes of TGB format 1 are fixed") {
  tgb::footer f;
  f.stream_id = bw::id128(1, 2);
  f.producer = "p";
  f.epoch = 3;
  f.seq = 300;
  f.state = "s";
  const std::vector<std::string> slices{"ab", "c"};
  const auto object = tgb::write(views(slices), f, 4);
  REQUIRE(good(object));
  std::string hex;
  for (const std::byte b : joined(object->pieces())) {
    hex += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    hex += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  CHECK(hex == "61625c73d5249c7173a80000631bf8b9469a21408c01000000000000000200000000000000017003ac02017300"
               "0204010201df7c112b4e8e327d25000000000000000100000042575447");
}

TEST_CASE("a world size that does not divide is refused with those that do; impossible layouts are refused") {
  const auto r = tgb::check_world_size(12, 5);
  REQUIRE_FALSE(good(r));
  CHECK(r.error().code() == bw::errc::invalid_argument);
  CHECK(r.error().what().find("1, 2, 3, 4, 6, 12") != std::string::npos);
  CHECK_FALSE(good(tgb::check_world_size(12, 0)));
  tgb::slice_layout bad;
  bad.count = 2;
  bad.alignment = 3;
  CHECK_FALSE(good(tgb::plan_read(bad, 0, 1)));
  bad.alignment = 8;
  bad.sizes = {1, 2, 3};
  CHECK_FALSE(good(tgb::plan_read(bad, 0, 1)));
  bad.sizes = {1, ~std::uint64_t{0}};
  CHECK_FALSE(good(tgb::plan_read(bad, 0, 1)));
  CHECK_FALSE(good(tgb::write(std::vector<bw::const_bytes>(), some_footer(), 8)));
  const std::vector<std::string> one{"a"};
  CHECK_FALSE(good(tgb::write(views(one), some_footer(), 0)));
  CHECK_FALSE(good(tgb::write(views(one), some_footer(), 12)));
}
