// Keys: their text, their order, their way back, and the names that are refused.
#include "support/catch.hpp"

#include <batchweave/manifest/naming.hpp>

#include <limits>
#include <string>

namespace bw = batchweave;
namespace m = batchweave::manifest;

namespace {

/// Whether a result holds a value; results do not print themselves.
template <class R>
bool good(const R& r) {
  return r.has_value();
}

}  // namespace

TEST_CASE("CO-11 the newest version is the first key in byte order, and every number comes back") {
  constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  CHECK(m::log_key(0) == "log/18446744073709551615");
  CHECK(m::log_key(max) == "log/00000000000000000000");
  for (const std::uint64_t v : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{9}, std::uint64_t{1} << 63, max - 1}) {
    CHECK(m::log_key(v + 1) < m::log_key(v));
    CHECK(m::parse_log_key(m::log_key(v)) == v);
  }
  for (const char* bad : {"", "log/", "log/1", "log/18446744073709551616", "log/1844674407370955161x", "log/018446744073709551615",
                          "seg/18446744073709551615", "log/-8446744073709551615"}) {
    INFO(bad);
    CHECK_FALSE(m::parse_log_key(bad));
  }
}

TEST_CASE("batch keys come back whole, foreign keys are not taken for one") {
  CHECK(m::tgb_key("p.1", 2, 3) == "tgb/p.1/00000000000000000002/00000000000000000003");
  const auto plain = m::parse_tgb_key(m::tgb_key("p.1", 2, 3));
  REQUIRE(plain);
  CHECK(plain->producer == "p.1");
  CHECK(plain->epoch == 2);
  CHECK(plain->seq == 3);
  CHECK_FALSE(plain->part);
  const auto part = m::parse_tgb_key(m::tgb_key("p.1", 2, 3, 4));
  REQUIRE(part);
  CHECK(part->part == 4u);
  const auto inbox = m::parse_inbox_key(m::inbox_key("p", 2, 3));
  REQUIRE(inbox);
  CHECK(inbox->seq == 3);
  for (const char* bad : {"tgb/p/2/3", "tgb//00000000000000000002/00000000000000000003", "tgb/p/00000000000000000002",
                          "tgb/p/00000000000000000002/00000000000000000003x", "tgb/p/00000000000000000002/00000000000000000003.",
                          "tgb/p/00000000000000000002/00000000000000000003.04", "tgb/../00000000000000000002/00000000000000000003",
                          "inbox/p/00000000000000000002/00000000000000000003"}) {
    INFO(bad);
    CHECK_FALSE(m::parse_tgb_key(bad));
  }
  const auto announced = m::parse_inbox_key("inbox/p/00000000000000000002/00000000000000000003.anything");
  REQUIRE(announced);
  CHECK(announced->seq == 3);
  CHECK_FALSE(announced->part);
  CHECK_FALSE(m::parse_inbox_key("inbox/p/00000000000000000002/3.1"));
}

TEST_CASE("CO-13 the TGBs of each producer lie under a prefix of their own, so the load of data spreads with the producers") {
  const std::string a = m::tgb_key("node-1", 7, 0);
  CHECK(a.rfind(m::tgb_prefix("node-1"), 0) == 0);
  CHECK(m::tgb_key("node-2", 7, 0).rfind(m::tgb_prefix("node-1"), 0) != 0);
  CHECK(m::tgb_key("node-10", 7, 0).rfind(m::tgb_prefix("node-1"), 0) != 0);
  CHECK(m::log_key(1).rfind(m::tgb_prefix(), 0) != 0);  // the few requests for versions are not behind them
}

TEST_CASE("segment and checkpoint keys come back whole") {
  const auto segment = m::parse_seg_key(m::seg_key(5, 9, bw::id128(1, 2)));
  REQUIRE(segment);
  CHECK(segment->first == 5);
  CHECK(segment->end == 9);
  CHECK(segment->nonce == bw::id128(1, 2));
  CHECK_FALSE(m::parse_seg_key("seg/5-9-1"));
  const auto mark = m::parse_ckpt_key(m::ckpt_key("run", "step-5", 7, 12, 3));
  REQUIRE(mark);
  CHECK(mark->group == "run");
  CHECK(mark->checkpoint == "step-5");
  CHECK(mark->generation == 7);
  CHECK(mark->step == 12);
  CHECK(mark->rank == 3);
  for (const char* bad : {"ckpt/run/step@1-2/", "ckpt/run/3", "ckpt/run/step@1-2/03", "ckpt/run/step@1-2/3/4", "ckpt/run/@1-2/3",
                          "ckpt/run/step/3", "ckpt/run/step@1/3", "ckpt/run/step@01-2/3", "ckpt/run/step@1-/3", "ckpt/run/a@b@1-2/3"}) {
    INFO(bad);
    CHECK_FALSE(m::parse_ckpt_key(bad));
  }
}

TEST_CASE("names that could leave their folder, or not be a key, are refused with the reason") {
  for (const char* name : {"a", "node-7", "A.b_c-9", "..."}) {
    INFO(name);
    CHECK(good(m::check_name("producer id", name)));
  }
  CHECK(good(m::check_name("producer id", std::string(128, 'x'))));
  const std::string too_long(129, 'x');
  for (const std::string& bad : {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a b"),
                                 std::string("\xc3\xa9"), std::string("a\0b", 3), too_long}) {
    const auto r = m::check_name("producer id", bad);
    REQUIRE_FALSE(good(r));
    CHECK(r.error().code() == bw::errc::invalid_argument);
    CHECK(r.error().what().find("producer id") != std::string::npos);
  }
}
