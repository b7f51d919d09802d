// The life cycle of a stream as pure decisions: what each change does to a version, what it refuses, when it has landed.
#include "support/catch.hpp"

#include <batchweave/commit/lifecycle.hpp>
#include <batchweave/commit/liveness.hpp>

#include <string>
#include <vector>

namespace bw = batchweave;
namespace m = batchweave::manifest;
namespace c = batchweave::commit;

namespace {

m::stream_info stream_of(std::uint64_t producers = 1) {
  m::stream_info s;
  s.id = bw::id128(1, 2);
  s.slices = 2;
  s.producers = producers;
  return s;
}

m::version after(const m::version& tail, bw::result<m::version> next) {
  if (!next) FAIL(next.error().what());
  const auto wrong = m::check(*next);
  if (!wrong.empty()) FAIL(wrong.front());
  CHECK(next->number == tail.number + 1);
  return *next;
}

template <class Change>
m::version apply(const m::version& tail, Change change) {
  CHECK_FALSE(change.landed(tail));
  m::version v = after(tail, change.propose(tail, bw::id128(9, tail.number), 5));
  CHECK(change.landed(v));
  CHECK(v.events.size() >= 1);
  return v;
}

m::version with_steps(const m::version& tail, const m::stream_info& stream, const std::string& id, std::uint64_t n) {
  const m::producer_entry* p = c::find_producer(tail.summary, id);
  std::vector<m::tgb_entry> entries;
  for (std::uint64_t i = 0; i < n; ++i) {
    m::tgb_entry e;
    e.producer = id;
    e.epoch = p->epoch;
    e.seq = p->next_seq + i;
    e.layout.count = 2;
    e.layout.fixed_size = 8;
    e.footer_offset = e.layout.data_end();
    e.bytes = e.footer_offset + 50;
    entries.push_back(e);
  }
  c::commit_request request;
  request.batches(entries);
  return after(tail, c::propose_commit(tail, stream, c::incarnation(id, p->epoch, p->owner), request));
}

m::version opened(const m::version& tail, const m::stream_info& stream, const std::string& id, std::uint64_t owner) {
  return after(tail, c::propose_open(tail, stream, id, bw::id128(3, owner), 0));
}

m::version start(std::uint64_t steps) {
  const m::stream_info s = stream_of();
  return with_steps(opened(c::genesis(s), s, "p", 1), s, "p", steps);
}

m::batch_name name(const std::string& producer, std::uint64_t epoch, std::uint64_t seq) {
  m::batch_name n;
  n.producer = producer;
  n.epoch = epoch;
  n.seq = seq;
  return n;
}

}  // namespace

TEST_CASE("the trim step follows the oldest retained checkpoint of the slowest group and never goes back") {
  m::version v = start(100);
  CHECK(c::trim_target(v.summary) == 0);
  v = apply(v, c::join_group("a", 0, 2));
  CHECK(c::trim_target(v.summary) == 0);
  v = apply(v, c::complete_checkpoint("a", v.number, "x", 30));
  const std::uint64_t generation = v.number - 1;
  v = apply(v, c::complete_checkpoint("a", generation, "y", 50));
  CHECK(c::trim_target(v.summary) == 30);
  m::version both = apply(v, c::join_group("b", 0, 1));
  CHECK(c::trim_target(both.summary) == 0);
  v = apply(v, c::trim());
  CHECK(v.summary.trim_step == 30);
  v = apply(v, c::join_group("b", 0, 1));
  CHECK(c::trim_target(v.summary) == 30);
  CHECK(c::trim().landed(v));
  const std::uint64_t b = v.number;
  const auto below = c::complete_checkpoint("b", b, "z", 29).propose(v, bw::id128(), 0);
  REQUIRE(below.has_error());
  CHECK(below.error().code() == bw::errc::reclaimed);
  v = apply(v, c::complete_checkpoint("b", b, "z", 40));
  CHECK(c::trim_target(v.summary) == 30);
  v = apply(v, c::complete_checkpoint("a", generation, "w", 60));
  CHECK(c::trim_target(v.summary) == 40);
  v = apply(v, c::leave_group("b"));
  CHECK(c::trim_target(v.summary) == 50);
}

TEST_CASE("a roll-back has landed only when its own generation is there, or one that did the same") {
  m::version v = start(100);
  v = apply(v, c::join_group("a", 0, 3));
  const std::uint64_t generation = v.number;
  v = apply(v, c::complete_checkpoint("a", generation, "x", 30));
  v = apply(v, c::complete_checkpoint("a", generation, "y", 50));
  c::roll_back mine("a", "x");
  const m::version proposed = after(v, mine.propose(v, bw::id128(1, 1), 0));
  CHECK_FALSE(mine.landed(v));
  CHECK(mine.landed(proposed));
  CHECK(proposed.summary.groups[0].retained.size() == 1);
  const m::version later = apply(proposed, c::complete_checkpoint("a", proposed.number, "z", 40));
  CHECK_FALSE(mine.landed(apply(later, c::roll_back("a"))));  // overtaken by another: mine must be proposed again
  CHECK(c::complete_checkpoint("a", generation, "late", 60).propose(proposed, bw::id128(), 0).error().code() == bw::errc::fenced);
  CHECK(c::roll_back("a", "y").propose(proposed, bw::id128(), 0).error().code() == bw::errc::invalid_argument);
  CHECK(c::roll_back("b").propose(proposed, bw::id128(), 0).error().code() == bw::errc::fenced);
}

TEST_CASE("sealing moves sealed_step and the first living version together, and a sealer that was overtaken is refused") {
  m::version v = start(100);
  const auto segment = [](std::uint64_t first, std::uint64_t end, std::uint64_t n) {
    m::segment_ref r;
    r.first = first;
    r.end = end;
    r.nonce = bw::id128(8, n);
    r.bytes = 10;
    return r;
  };
  v = apply(v, c::seal_steps(segment(0, 60, 1), v.number + 1));
  CHECK(v.summary.sealed_step == 60);
  CHECK(v.summary.oldest_version == v.number);
  v = apply(v, c::seal_steps(segment(60, 70, 2), v.number));
  CHECK(v.summary.segments.size() == 2);
  CHECK(c::seal_steps(segment(60, 70, 3), v.number).landed(v));
  const m::version merged = apply(v, c::seal_steps(segment(0, 80, 4), v.number));
  REQUIRE(merged.summary.segments.size() == 1);
  CHECK(merged.summary.segments[0].nonce == bw::id128(8, 4));
  const auto overtaken = c::seal_steps(segment(60, 90, 5), v.number).propose(merged, bw::id128(), 0);
  REQUIRE(overtaken.has_error());
  CHECK(overtaken.error().code() == bw::errc::object_changed);
  CHECK(c::seal_steps(segment(85, 90, 6), v.number).propose(merged, bw::id128(), 0).has_error());   // a hole
  CHECK(c::seal_steps(segment(80, 101, 6), v.number).propose(merged, bw::id128(), 0).has_error());  // beyond the stream
  v = apply(merged, c::seal_steps(segment(80, 100, 7), merged.number));
  v = apply(v, c::join_group("a", 0, 1));
  v = apply(v, c::complete_checkpoint("a", v.number, "x", 85));
  v = apply(v, c::trim());
  REQUIRE(v.summary.segments.size() == 1);  // the one below the trim step is dropped
  CHECK(v.summary.segments[0].first == 80);
}

TEST_CASE("a retired producer keeps its epoch and next_seq, and the last one to go ends the stream") {
  const m::stream_info s = stream_of(2);
  m::version v = opened(c::genesis(s), s, "p", 1);
  v = with_steps(v, s, "p", 3);
  CHECK(c::retire_producer(s, "q").propose(v, bw::id128(), 0).error().code() == bw::errc::invalid_argument);
  m::version only_retired = apply(v, c::retire_producer(s, "p"));
  const m::producer_entry& p = only_retired.summary.producers[0];
  CHECK(p.epoch == 2);
  CHECK(p.next_seq == 3);
  CHECK(p.retired);
  CHECK(p.last_tgb.producer.empty());
  CHECK_FALSE(only_retired.summary.closed);
  CHECK(c::propose_commit(only_retired, s, c::incarnation("p", 1, bw::id128(3, 1)), c::commit_request()).error().code() == bw::errc::fenced);
  v = opened(v, s, "q", 2);
  c::commit_request finish;
  finish.finish(true);
  v = after(v, c::propose_commit(v, s, c::incarnation("q", 1, bw::id128(3, 2)), finish));
  CHECK_FALSE(v.summary.closed);
  v = apply(v, c::retire_producer(s, "p"));
  CHECK(v.summary.closed);
  CHECK(v.summary.final_step == 3);
}

TEST_CASE("I7 a TGB is dead only when it is committed below the trim step, an orphan only when its epoch is fenced") {
  const m::stream_info s = stream_of();
  m::version v = opened(c::genesis(s), s, "p", 1);
  std::vector<m::tgb_entry> all;
  v = with_steps(v, s, "p", 5);  // epoch 1: 0..4
  all.insert(all.end(), v.entries.begin(), v.entries.end());
  v = opened(v, s, "p", 2);
  v = with_steps(v, s, "p", 5);  // epoch 2: 5..9
  all.insert(all.end(), v.entries.begin(), v.entries.end());
  for (const std::uint64_t trim : {0u, 3u, 7u, 10u}) {
    CAPTURE(trim);
    m::version t = v;
    t.summary.trim_step = trim;
    c::liveness<> live(std::make_shared<const m::version>(t));
    for (std::uint64_t i = trim; i < all.size(); ++i) live.add(all[i]);
    for (std::uint64_t seq = 0; seq < 12; ++seq) {
      CAPTURE(seq);
      const std::uint64_t committed_by = seq < 5 ? 1 : seq < 10 ? 2 : 0;
      for (std::uint64_t epoch = 1; epoch < 4; ++epoch) {
        CAPTURE(epoch);
        const c::sentence got = live.judge_tgb(name("p", epoch, seq));
        if (epoch == committed_by && (seq >= trim || seq == 9)) CHECK(got == c::sentence::keep);
        else if (epoch == committed_by) CHECK(got == c::sentence::dead);
        else if (epoch == 1) CHECK(got != c::sentence::keep);  // fenced, never committed
        else if (seq >= 10 || epoch == 3) CHECK(got == c::sentence::keep);  // in flight, or of an incarnation opened since
      }
    }
    CHECK(live.judge_tgb(name("q", 1, 0)) == c::sentence::keep);
  }
}
