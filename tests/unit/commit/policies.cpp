// Commit policies as pure functions: what they answer to what they are told.
#include "support/catch.hpp"

#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>

#include <algorithm>
#include <vector>

namespace commit = batchweave::commit;
using batchweave::duration;
using std::chrono::milliseconds;

namespace {

commit::observation seen(bool won, milliseconds round_trip, unsigned producers, unsigned attempt = 1) {
  commit::observation o;
  o.won = won;
  o.round_trip = round_trip;
  o.active_producers = producers;
  o.attempt = attempt;
  return o;
}

commit::backlog waiting(std::size_t batches, milliseconds age = milliseconds(0)) {
  commit::backlog b;
  b.batches = batches;
  b.oldest_age = age;
  return b;
}

}  // namespace

TEST_CASE("dac commits at once while it is alone") {
  commit::dac policy;
  policy.seed(1);
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
  policy.observe(seen(true, milliseconds(50), 1));
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
}

TEST_CASE("dac waits c (N - 1) tau, within half and one and a half of it") {
  for (unsigned n : {2u, 4u, 16u, 64u, 256u}) {
    commit::dac policy;
    policy.seed(n);
    for (int i = 0; i < 50; ++i) policy.observe(seen(i % 2 == 0, milliseconds(60), n, 1));
    const double middle = policy.factor() * (n - 1) * 60e6;
    double sum = 0;
    constexpr int draws = 4000;
    for (int i = 0; i < draws; ++i) {
      const auto d = static_cast<double>(policy.delay_before_commit(waiting(1)).count());
      CHECK(d >= 0.5 * middle * 0.999);
      CHECK(d <= 1.5 * middle * 1.001);
      sum += d;
    }
    CHECK(sum / draws == Approx(middle).epsilon(0.05));
  }
}

TEST_CASE("dac: tau follows the round trip, conflicts move c only within its bounds") {
  commit::dac policy;
  policy.seed(3);
  policy.observe(seen(true, milliseconds(20), 4));
  CHECK(policy.tau_seconds() == Approx(0.020));
  for (int i = 0; i < 100; ++i) policy.observe(seen(true, milliseconds(80), 4));
  CHECK(policy.tau_seconds() == Approx(0.080).epsilon(0.01));
  for (int i = 0; i < 1000; ++i) policy.observe(seen(false, milliseconds(80), 4));
  CHECK(policy.factor() == Approx(3.0));
  for (int i = 0; i < 1000; ++i) policy.observe(seen(true, milliseconds(80), 4));
  CHECK(policy.factor() == Approx(0.8));
}

TEST_CASE("CO-06 losers of one race do not retry in lockstep") {
  std::vector<duration> waits;
  for (std::uint64_t s = 0; s < 64; ++s) {
    commit::dac policy;
    policy.seed(s);
    const commit::observation lost = seen(false, milliseconds(65), 64);
    policy.observe(lost);
    const duration d = policy.delay_before_retry(lost);
    CHECK(d >= duration(0));
    CHECK(d <= milliseconds(65));
    waits.push_back(d);
  }
  std::sort(waits.begin(), waits.end());
  CHECK(std::adjacent_find(waits.begin(), waits.end()) == waits.end());
  CHECK(waits.back() - waits.front() > milliseconds(40));
}

TEST_CASE("a seed reproduces a policy's draws") {
  commit::dac a, b;
  a.seed(9);
  b.seed(9);
  a.observe(seen(true, milliseconds(10), 8));
  b.observe(seen(true, milliseconds(10), 8));
  for (int i = 0; i < 10; ++i) CHECK(a.delay_before_commit(waiting(1)) == b.delay_before_commit(waiting(1)));
}

TEST_CASE("eager never waits, fixed_interval counts from the oldest batch, every<n> counts batches") {
  commit::eager eager;
  CHECK(eager.delay_before_commit(waiting(1)) == duration(0));
  commit::fixed_interval fixed(milliseconds(100));
  CHECK(fixed.delay_before_commit(waiting(1, milliseconds(30))) == milliseconds(70));
  CHECK(fixed.delay_before_commit(waiting(1, milliseconds(300))) == duration(0));
  commit::every<3> three;
  CHECK(three.delay_before_commit(waiting(2)) == commit::not_yet);
  CHECK(three.delay_before_commit(waiting(3)) == duration(0));
}
