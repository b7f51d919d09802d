// Both manifest codecs on random versions: round trips, damage of every kind, fixed bytes, bounded size; and the stream description.
#include "support/catch.hpp"
#include "support/seed.hpp"

#include <batchweave/base/random.hpp>
#include <batchweave/manifest/codec.hpp>
#include <batchweave/manifest/stream_info.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace bw = batchweave;
namespace m = batchweave::manifest;

namespace {

/// Whether a result holds a value; results do not print themselves.
template <class R>
bool good(const R& r) {
  return r.has_value();
}

using decoder = std::function<bw::result<m::version>(bw::const_bytes)>;

std::uint64_t wide(bw::random64& r) { return r() >> (r() % 64); }

std::string text(bw::random64& r) {
  std::string s(r() % 12, '\0');
  for (char& c : s) c = static_cast<char>(r());  // often not UTF-8
  return s;
}

m::tgb_entry entry_of(const m::producer_entry& p, bw::random64& r) {
  m::tgb_entry e;
  e.producer = p.id;
  e.epoch = p.epoch - r() % 2;
  e.seq = r() % p.next_seq;
  e.layout.count = static_cast<std::uint32_t>(r() % 5 + 1);
  e.layout.alignment = 1u << (r() % 13);
  if (r() % 2) e.layout.fixed_size = r() % 100000;
  else for (std::uint32_t i = 0; i < e.layout.count; ++i) e.layout.sizes.push_back(r() % 3 * 1000);
  e.footer_offset = e.layout.data_end();
  e.bytes = e.footer_offset + r() % 1000;
  e.samples = wide(r);
  e.tag = text(r);
  e.unix_ns = static_cast<std::int64_t>(r());
  return e;
}

m::version random_version(bw::random64& r) {
  m::version v;
  v.number = wide(r) | 1;
  v.stream_id = bw::id128::draw(r);
  v.nonce = bw::id128::draw(r);
  v.unix_ns = static_cast<std::int64_t>(wide(r)) * (r() % 2 ? 1 : -1);
  m::summary& s = v.summary;
  v.first_step = wide(r) >> 1;
  const std::uint64_t producers = r() % 4 + 1;
  for (std::uint64_t i = 0; i < producers; ++i) {
    m::producer_entry p;
    p.id = "producer-" + std::to_string(i);
    p.epoch = (wide(r) >> 1) + 1;
    p.owner = bw::id128::draw(r);
    p.next_seq = (wide(r) >> 1) + 1;
    p.last_version = v.number;
    p.finished = r() % 2;
    p.retired = r() % 2;
    if (r() % 2) p.last_tgb = entry_of(p, r);
    s.producers.push_back(std::move(p));
  }
  const std::uint64_t entries = r() % 6;
  for (std::uint64_t i = 0; i < entries; ++i) v.entries.push_back(entry_of(s.producers[r() % producers], r));
  s.next_step = v.first_step + entries;
  s.trim_step = s.next_step / 3;
  s.sealed_step = s.next_step / 2;
  s.oldest_version = v.number / 2;
  s.closed = r() % 2;
  if (s.closed) s.final_step = s.next_step;
  if (s.sealed_step > 2) {
    m::segment_ref g;
    g.first = 1;
    g.end = s.sealed_step;
    g.nonce = bw::id128::draw(r);
    g.bytes = wide(r);
    s.segments.push_back(g);
  }
  m::group_entry g;
  g.name = "run-1";
  g.world_size = static_cast<std::uint32_t>(r());
  g.keep = static_cast<std::uint32_t>(r());
  g.generation = wide(r);
  m::checkpoint_entry c;
  c.id = "checkpoint.7";
  c.step = s.next_step;
  g.retained.push_back(c);
  s.groups.push_back(g);
  for (std::uint64_t i = 0; i < std::size(m::event_names); ++i) {
    m::event e;
    e.kind = static_cast<m::event_kind>(i);
    e.producer = text(r);
    e.epoch = wide(r);
    e.owner = bw::id128::draw(r);
    e.group = text(r);
    e.checkpoint = text(r);
    e.step = wide(r);
    v.events.push_back(std::move(e));
  }
  return v;
}

/// Small and always the same.
m::version golden_version() {
  m::version v;
  v.number = 7;
  v.stream_id = bw::id128(1, 2);
  v.nonce = bw::id128(3, 4);
  v.unix_ns = -5;
  m::producer_entry p;
  p.id = "a";
  p.epoch = 1;
  p.owner = bw::id128(5, 6);
  p.next_seq = 1;
  p.last_version = 7;
  m::tgb_entry e;
  e.producer = "a";
  e.epoch = 1;
  e.bytes = 300;
  e.footer_offset = 200;
  e.layout.count = 2;
  e.layout.alignment = 8;
  e.layout.fixed_size = 64;
  e.samples = std::uint64_t{1} << 60;
  e.tag = "t\"\n\xc3\xa9";
  p.last_tgb = e;
  v.summary.producers.push_back(p);
  v.summary.next_step = 1;
  v.summary.oldest_version = 1;
  v.entries.push_back(e);
  return v;
}

std::string hex(bw::const_bytes b) {
  std::string s;
  for (const std::byte x : b) {
    const char digits[] = "0123456789abcdef";
    s += digits[std::to_integer<unsigned>(x) >> 4];
    s += digits[std::to_integer<unsigned>(x) & 15];
  }
  return s;
}

}  // namespace

TEST_CASE("versions survive both codecs, and the codec is recognised from the bytes") {
  const std::uint64_t seed = test::seed();
  INFO("seed " << seed);
  bw::random64 r(seed);
  for (int i = 0; i < 300; ++i) {
    const m::version v = random_version(r);
    const auto wrong = m::check(v);
    if (!wrong.empty()) FAIL("the generator made an unsound version: " << wrong[0]);
    for (const char* codec : {"binary", "json"}) {
      const auto bytes = m::encode_version(v, codec);
      const auto back = m::decode_version(bytes);
      if (!back) FAIL(codec << ": " << back.error().what());
      REQUIRE(*back == v);
    }
  }
}

TEST_CASE("every flipped byte, every truncation and every appended byte is rejected by both codecs") {
  const m::version v = golden_version();
  for (const char* codec : {"binary", "json"}) {
    const auto bytes = m::encode_version(v, codec);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const unsigned mask : {1u, 0x20u, 0x80u, 0xffu}) {
        auto bad = bytes;
        bad[i] ^= static_cast<std::byte>(mask);
        const auto got = m::decode_version(bad);
        if (got) FAIL(codec << ": byte " << i << " flipped by " << mask << " was accepted");
        CHECK_FALSE(got.error().what().empty());
      }
      // A heap copy of the exact size, so that reading past its end is seen.
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(i));
      if (m::decode_version(cut)) FAIL(codec << ": the first " << i << " bytes were accepted");
    }
    auto longer = bytes;
    longer.push_back(std::byte{'\n'});
    CHECK_FALSE(good(m::decode_version(longer)));
  }
}

TEST_CASE("hostile bytes under a valid checksum neither crash nor allocate beyond their size") {
  const std::uint64_t seed = test::seed();
  INFO("seed " << seed);
  bw::random64 r(seed);
  const auto sound = m::binary::encode(golden_version());
  for (int i = 0; i < 20000; ++i) {
    bw::byte_writer w;
    auto body = std::vector<std::byte>(sound.begin(), sound.end() - 8);
    for (std::uint64_t n = r() % 4 + 1; n > 0; --n) body[5 + r() % (body.size() - 5)] = static_cast<std::byte>(r() % 3 ? r() : 0xff);
    w.raw(body);
    w.fixed64(bw::xxh3(w.bytes()));
    const auto got = m::decode_version(w.bytes());
    if (got) CHECK(m::check(*got).empty());
    else CHECK_FALSE(got.error().what().empty());
  }
}

TEST_CASE("a newer format is named as such, a tombstone is no version") {
  auto bytes = m::binary::encode(golden_version());
  bytes[4] = std::byte{2};
  const auto newer = m::decode_version(bytes);
  REQUIRE_FALSE(good(newer));
  CHECK(newer.error().code() == bw::errc::not_supported);
  CHECK(newer.error().what().find("newer batchweave") != std::string::npos);
  const auto newer_json = m::decode_version(bw::as_bytes("{\"batchweave\":\"manifest\",\"format\":2,\"x\":1}"));
  REQUIRE_FALSE(good(newer_json));
  CHECK(newer_json.error().code() == bw::errc::not_supported);
  CHECK(m::is_tombstone(bw::const_bytes()));
  CHECK_FALSE(m::is_tombstone(bytes));
  CHECK_FALSE(good(m::decode_version(bw::const_bytes())));
  CHECK_THROWS_AS(m::encode_version(golden_version(), "xml"), bw::error);
}

TEST_CASE("the bytes of format 1 are fixed") {
  CHECK(hex(m::binary::encode(golden_version())) ==
        "42574d46010701000000000000000200000000000000030000000000000004000000000000000901000100000101610105000000000000"
        "0006000000000000000107000001610100ac02c80101000000000101610100ac02c80101020840008080808080808080100574220ac3a9"
        "000096444f0514c0d472");
  const auto json = m::json::encode(golden_version());
  CHECK(std::string(bw::as_text(json)) ==
        R"~({"batchweave":"manifest","format":1,"version":7,"stream_id":"00000000000000010000000000000002",)~"
        R"~("nonce":"00000000000000030000000000000004","unix_ns":-5,"summary":{"next_step":1,"trim_step":0,"oldest_version":1,)~"
        R"~("sealed_step":0,"segments":[],"producers":[{"id":"a","epoch":1,"owner":"00000000000000050000000000000006",)~"
        R"~("next_seq":1,"last_version":7,"finished":false,"retired":false,"last_tgb":{"producer":"a","epoch":1,"seq":0,)~"
        R"~("bytes":300,"footer_offset":200,"parts":1}}],"groups":[],"closed":false,"final_step":0},"first_step":0,)~"
        R"~("entries":[{"producer":"a","epoch":1,"seq":0,"bytes":300,"footer_offset":200,"parts":1,"layout":{"count":2,)~"
        R"~("alignment":8,"fixed_size":64,"sizes":[]},"samples":"1152921504606846976","tag":"t\"\u000aé","unix_ns":0}],)~"
        R"~("events":[],"checksum":"15234565ab6d3fe5"})~"
        "\n");
}

TEST_CASE("each broken invariant is found and named") {
  const auto broken = [](auto change) {
    m::version v = golden_version();
    change(v);
    const auto wrong = m::check(v);
    REQUIRE_FALSE(wrong.empty());
    CHECK(m::validate(v).error().code() == bw::errc::damaged);
    for (const char* codec : {"binary", "json"}) CHECK_FALSE(good(m::decode_version(m::encode_version(v, codec))));
  };
  REQUIRE(m::check(golden_version()).empty());
  broken([](m::version& v) { v.number = 0; });
  broken([](m::version& v) { v.first_step = 1; });
  broken([](m::version& v) { v.summary.trim_step = 2; });
  broken([](m::version& v) { v.summary.sealed_step = 2; });
  broken([](m::version& v) { v.summary.oldest_version = 8; });
  broken([](m::version& v) { v.summary.closed = true; });
  broken([](m::version& v) { v.summary.producers.push_back(v.summary.producers[0]); });
  broken([](m::version& v) { v.summary.producers[0].id = "a/b"; });
  broken([](m::version& v) { v.summary.producers[0].last_tgb.footer_offset = 301; });
  broken([](m::version& v) { v.entries[0].producer = "b"; });
  broken([](m::version& v) { v.entries[0].seq = 1; });
  broken([](m::version& v) { v.entries[0].epoch = 2; });
  broken([](m::version& v) { v.entries[0].layout.alignment = 3; });
  broken([](m::version& v) { v.entries[0].layout.fixed_size = 1000; });
}

TEST_CASE("CO-14 the size of a version does not grow with history") {
  const auto size_at = [](std::uint64_t steps, const char* codec) {
    m::version v = golden_version();
    v.number = steps;
    v.first_step = steps - 1;
    v.summary.next_step = steps;
    v.summary.producers[0].next_seq = steps;
    v.summary.producers[0].last_version = steps;
    v.entries[0].seq = steps - 1;
    v.summary.producers[0].last_tgb = v.entries[0];
    return m::encode_version(v, codec).size();
  };
  for (const char* codec : {"binary", "json"}) {
    const std::size_t young = size_at(10, codec);
    const std::size_t old = size_at(1'000'000'000'000, codec);
    CHECK(old < young + 120);  // only longer numbers
  }
  // A producer's last TGB is kept without its table of slices.
  m::version v = golden_version();
  const std::size_t before = m::binary::encode(v).size();
  m::tgb_entry e;
  e.producer = "a";
  e.epoch = 1;
  e.layout.count = 1000;
  e.layout.sizes.assign(1000, 5);
  v.summary.producers[0].last_tgb = e;
  CHECK(m::binary::encode(v).size() <= before);
}

TEST_CASE("jq reads a JSON manifest without losing digits") {
  if (std::system("jq --version >/dev/null 2>&1") != 0) {
    WARN("jq is not installed");
    return;
  }
  const auto bytes = m::json::encode(golden_version());
  const std::string path = "manifest_codec_jq.json";
  {
    std::ofstream f(path, std::ios::binary);
    f << bw::as_text(bytes);
  }
  const std::string ask = "jq -e '.batchweave == \"manifest\" and .version == 7 and .entries[0].samples == \"1152921504606846976\" and "
                          ".entries[0].tag == \"t\\\"\\n\\u00e9\" and .unix_ns == -5' " + path + " >/dev/null";
  CHECK(std::system(ask.c_str()) == 0);
  std::remove(path.c_str());
}

TEST_CASE("the stream description round trips and rejects damage by name") {
  m::stream_info s;
  s.id = bw::id128(1, 2);
  s.slices = 8;
  s.producers = std::uint64_t{1} << 60;
  s.codec = "json";
  const std::string text_of = m::encode_stream_info(s);
  const auto back = m::decode_stream_info(bw::as_bytes(text_of));
  REQUIRE(good(back));
  CHECK(*back == s);
  for (std::size_t i = 0; i < text_of.size(); ++i) {
    std::string bad = text_of;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    if (m::decode_stream_info(bw::as_bytes(bad))) FAIL("byte " << i);
    const std::string cut = text_of.substr(0, i);
    if (m::decode_stream_info(bw::as_bytes(cut))) FAIL("the first " << i << " bytes");
  }
  const auto refused = [&](auto change, std::string_view names) {
    m::stream_info x = s;
    change(x);
    const std::string t = m::encode_stream_info(x);
    const auto got = m::decode_stream_info(bw::as_bytes(t));
    REQUIRE_FALSE(good(got));
    CHECK(got.error().what().find(names) != std::string::npos);
  };
  refused([](m::stream_info& x) { x.id = bw::id128(); }, "id");
  refused([](m::stream_info& x) { x.slices = 0; }, "slices");
  refused([](m::stream_info& x) { x.producers = 0; }, "producers");
  refused([](m::stream_info& x) { x.order = "random"; }, "random");
  refused([](m::stream_info& x) { x.order = "shuffled"; }, "shuffled");
}
