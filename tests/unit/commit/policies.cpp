// Commit policies as pure functions: what they answer to what they are told.
#include "support/catch.hpp"

#include <batchweave/commit/cooperative.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>
#include <batchweave/commit/protocol.hpp>

#include <algorithm>
#include <cmath>
#include <string>
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

struct draws {
  double least, most, mean;  // nanoseconds
};
template <class Draw>
draws drawn(int n, Draw draw) {
  draws d{1e300, -1e300, 0};
  for (int i = 0; i < n; ++i) {
    const auto x = static_cast<double>(draw().count());
    d.least = std::min(d.least, x);
    d.most = std::max(d.most, x);
    d.mean += x / n;
  }
  return d;
}

// A version whose producers committed last the given numbers of versions ago.
batchweave::manifest::version after(const std::vector<std::uint64_t>& ages) {
  batchweave::manifest::version v;
  v.number = 1'000'000;
  for (std::size_t i = 0; i < ages.size(); ++i) {
    batchweave::manifest::producer_entry p;
    p.id = "p" + std::to_string(10'000 + i);
    p.last_version = v.number - ages[i];
    v.summary.producers.push_back(std::move(p));
  }
  return v;
}
std::vector<std::uint64_t> in_turn(std::uint64_t n, std::uint64_t from = 0) {
  std::vector<std::uint64_t> ages;
  for (std::uint64_t i = 0; i < n; ++i) ages.push_back(from + i);
  return ages;
}

template <class Policy>
std::vector<duration> trace(Policy policy, std::uint64_t seed) {
  policy.seed(seed);
  std::vector<duration> t;
  for (unsigned i = 0; i < 40; ++i) {
    const commit::observation o = seen(i % 3 != 0, milliseconds(40 + i), 2 + i % 5, 1 + i % 4);
    policy.observe(o);
    t.push_back(policy.delay_before_commit(waiting(1 + i % 2, milliseconds(i))));
    t.push_back(policy.delay_before_retry(o));
  }
  return t;
}
template <class Policy>
void check_randomness(const Policy& policy) {
  const std::vector<duration> once = trace(policy, 9);
  CHECK(once == trace(policy, 9));
  const std::vector<duration> other = trace(policy, 10);
  std::size_t same = 0;
  for (std::size_t i = 1; i < once.size(); i += 2) same += once[i] == other[i];
  CHECK(same == 0);  // retries are always random
  for (const duration d : once) CHECK(d >= duration(0));
}

}  // namespace

TEST_CASE("dac commits at once while it is alone") {
  commit::dac policy;
  policy.seed(1);
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
  policy.observe(seen(true, milliseconds(50), 1));
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
}

TEST_CASE("dac waits c (N - 1) tau, within a quarter of it") {
  for (unsigned n : {2u, 4u, 16u, 64u, 256u, 1024u}) {
    commit::dac policy;
    policy.seed(n);
    for (int i = 0; i < 50; ++i) policy.observe(seen(i % 2 == 0, milliseconds(60), n, 1));
    const double middle = policy.factor() * (n - 1) * 60e6;
    const draws d = drawn(4000, [&] { return policy.delay_before_commit(waiting(1)); });
    CHECK(d.least >= 0.75 * middle * 0.999);
    CHECK(d.most <= 1.25 * middle * 1.001);
    CHECK(d.mean == Approx(middle).epsilon(0.02));
    CHECK(d.most - d.least > 0.4 * middle);
  }
}

TEST_CASE("dac: a bound on visibility does not bring the interval below c = 1.2") {
  commit::dac policy;
  policy.seed(5);
  CHECK(policy.soonest() == duration(0));
  for (int i = 0; i < 400; ++i) policy.observe(seen(i % 3 == 0, milliseconds(60), 100));
  REQUIRE(policy.factor() > 1.5);
  for (int i = 0; i < 100; ++i) {
    const duration asked = policy.delay_before_commit(waiting(1));
    CHECK(commit::soonest_attempt(policy) < asked);
    const double least = 1.2 * 99 * 60e6 * 0.75;
    CHECK(static_cast<double>(commit::soonest_attempt(policy).count()) >= least * 0.999);
  }
  const commit::eager eager;
  CHECK(commit::soonest_attempt(eager) == duration(0));
  const commit::cooperative cooperative;
  CHECK(commit::soonest_attempt(cooperative) == duration(0));
}

TEST_CASE("dac: a loser waits up to tau, twice that after each further loss, at most eight times") {
  commit::dac policy;
  policy.seed(11);
  for (int i = 0; i < 20; ++i) policy.observe(seen(true, milliseconds(60), 64));
  for (unsigned attempt : {1u, 2u, 3u, 4u, 5u, 40u}) {
    const double most = 60e6 * std::min(8.0, std::pow(2.0, attempt - 1.0));
    const draws d = drawn(2000, [&] { return policy.delay_before_retry(seen(false, milliseconds(60), 64, attempt)); });
    CHECK(d.least >= 0);
    CHECK(d.most <= most * 1.001);
    CHECK(d.mean == Approx(most / 2).epsilon(0.06));
  }
}

TEST_CASE("cooperative: the spares together attempt about once in ten round trips, whatever N") {
  for (unsigned n : {2u, 4u, 16u, 64u, 256u, 1024u}) {
    commit::cooperative policy;
    policy.seed(n);
    for (int i = 0; i < 60; ++i) policy.observe(seen(false, milliseconds(80), n));
    const double middle = n * 80e6 / commit::cooperative::spare_share;
    const draws d = drawn(4000, [&] { return policy.delay_before_commit(waiting(1)); });
    CHECK(d.mean == Approx(middle).epsilon(0.03));
    CHECK(d.least >= 0.5 * middle * 0.999);
    CHECK(d.most <= 1.5 * middle * 1.001);
  }
}

TEST_CASE("cooperative: the winner goes on after a short pause whatever N, and steps back when it loses") {
  for (const double share : {0.35, 0.5, 0.7}) {
    for (unsigned n : {2u, 64u, 1024u}) {
      commit::cooperative policy;
      policy.share(share).seed(n);
      for (int i = 0; i < 60; ++i) policy.observe(seen(true, milliseconds(80), n));
      const draws d = drawn(1000, [&] { return policy.delay_before_commit(waiting(0)); });
      CHECK(80e6 / (80e6 + d.mean) == Approx(share).epsilon(0.02));
      CHECK(d.most <= 1.11 * (1 / share - 1) * 80e6);
      policy.observe(seen(false, milliseconds(80), n));
      CHECK(policy.delay_before_commit(waiting(1)) > duration(milliseconds(80)) * n);
    }
  }
  CHECK(commit::cooperative().share(9).share() == 1.0);
  CHECK(commit::cooperative().share(0).share() == 0.35);
}

TEST_CASE("cooperative: an empty inbox is looked into ever less, at last every 32 pauses, and like before once there is something") {
  commit::cooperative policy;
  policy.share(0.5).seed(4);
  for (int i = 0; i < 60; ++i) policy.observe(seen(true, milliseconds(80), 16));
  commit::observation nothing = seen(false, milliseconds(15), 16);
  nothing.attempted = false;
  for (const double pauses : {2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0}) {
    policy.observe(nothing);
    const auto d = static_cast<double>(policy.delay_before_commit(waiting(0)).count());
    CHECK(d == Approx(pauses * 80e6).epsilon(0.11));
  }
  CHECK(policy.tau_seconds() == Approx(0.080));  // a look is no round trip of an attempt
  policy.observe(seen(true, milliseconds(80), 16));
  CHECK(static_cast<double>(policy.delay_before_commit(waiting(0)).count()) == Approx(80e6).epsilon(0.11));
}

TEST_CASE("A look at the tail tells a policy who is there and nothing about round trips or conflicts") {
  commit::dac policy;
  policy.seed(1);
  for (int i = 0; i < 10; ++i) policy.observe(seen(true, milliseconds(60), 4));
  const double factor = policy.factor();
  commit::observation look = seen(false, milliseconds(5), 1);
  look.attempted = false;
  policy.observe(look);
  CHECK(policy.tau_seconds() == Approx(0.060));
  CHECK(policy.factor() == factor);
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
}

TEST_CASE("cooperative: commits at once while alone, announces, and others do not") {
  commit::cooperative policy;
  policy.seed(1);
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
  policy.observe(seen(true, milliseconds(50), 1));
  CHECK(policy.delay_before_commit(waiting(1)) == duration(0));
  CHECK(commit::is_cooperative_v<commit::cooperative>);
  CHECK_FALSE(commit::is_cooperative_v<commit::dac>);
  CHECK_FALSE(commit::is_cooperative_v<commit::eager>);
  CHECK_FALSE(commit::is_cooperative_v<commit::fixed_interval>);
  CHECK_FALSE(commit::is_cooperative_v<commit::every<2>>);
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
  const auto spread = [](auto policy) {
    std::vector<duration> waits;
    for (std::uint64_t s = 0; s < 64; ++s) {
      auto mine = policy;
      mine.seed(s);
      const commit::observation lost = seen(false, milliseconds(65), 64);
      mine.observe(lost);
      waits.push_back(mine.delay_before_retry(lost));
    }
    std::sort(waits.begin(), waits.end());
    CHECK(waits.front() >= duration(0));
    CHECK(waits.back() <= milliseconds(65));
    CHECK(std::adjacent_find(waits.begin(), waits.end()) == waits.end());
    CHECK(waits.back() - waits.front() > milliseconds(40));
  };
  spread(commit::dac());
  spread(commit::cooperative());
  spread(commit::eager());
  spread(commit::every<4>());
  spread(commit::fixed_interval(milliseconds(260)));
}

TEST_CASE("CO-07 no number of lost attempts ends a policy's retries or makes them long") {
  const auto lose = [](auto policy, milliseconds most) {
    policy.seed(2);
    for (unsigned attempt = 1; attempt < 100'000; ++attempt) {
      const commit::observation o = seen(false, milliseconds(60), 64, attempt);
      policy.observe(o);
      const duration d = policy.delay_before_retry(o);
      if (d < duration(0) || d > most) FAIL("attempt " << attempt << ": " << d.count() << " ns");
    }
  };
  lose(commit::dac(), milliseconds(480));
  lose(commit::cooperative(), milliseconds(60));
  lose(commit::eager(), milliseconds(60));
  lose(commit::every<4>(), milliseconds(60));
  lose(commit::fixed_interval(milliseconds(200)), milliseconds(50));
  lose(commit::fixed_interval(std::chrono::hours(1)), milliseconds(480));
}

TEST_CASE("A seed reproduces a policy's draws, another seed gives others") {
  check_randomness(commit::dac());
  check_randomness(commit::cooperative());
  check_randomness(commit::eager());
  check_randomness(commit::fixed_interval(milliseconds(100)));
  check_randomness(commit::every<2>());
}

TEST_CASE("The randomness of one producer does not depend on another's draws") {
  commit::cooperative a, b, alone;
  a.seed(1);
  b.seed(2);
  alone.seed(1);
  for (auto* p : {&a, &b, &alone}) p->observe(seen(true, milliseconds(10), 8));
  for (int i = 0; i < 10; ++i) {
    for (int k = 0; k < i; ++k) (void)b.delay_before_commit(waiting(1));
    CHECK(a.delay_before_commit(waiting(1)) == alone.delay_before_commit(waiting(1)));
  }
}

TEST_CASE("Active producers: everybody who commits in turn is seen, whatever their number") {
  for (std::uint64_t n : {1u, 2u, 4u, 16u, 64u, 256u, 1024u}) {
    CHECK(commit::active_producers(after(in_turn(n))) == n);
    // Turns that are not quite regular: the longest took twice as long as the mean.
    std::vector<std::uint64_t> ages;
    for (std::uint64_t i = 0; i < n; ++i) ages.push_back(i < n / 2 ? i : n / 2 + (i - n / 2) * 3);
    CHECK(commit::active_producers(after(ages)) == n);
  }
}

TEST_CASE("Active producers: whoever left is forgotten after about two turns of those who stay") {
  for (std::uint64_t n : {16u, 64u, 256u, 1024u}) {
    std::vector<std::uint64_t> ages = in_turn(n);
    for (const std::uint64_t gone : in_turn(n, 2 * n + 17)) ages.push_back(gone);
    CHECK(commit::active_producers(after(ages)) == n);
  }
  // Carried by every version: forgotten after 16.
  std::vector<std::uint64_t> ages(512, 0);
  for (int i = 0; i < 512; ++i) ages.push_back(17);
  CHECK(commit::active_producers(after(ages)) == 512);
  ages.insert(ages.end(), 3, 16);
  CHECK(commit::active_producers(after(ages)) == 515);
}

TEST_CASE("Active producers: newcomers count at once, the finished and the retired never") {
  std::vector<std::uint64_t> ages(1024, 0);
  for (std::size_t i = 0; i < ages.size(); ++i) ages[i] = i / 2;
  batchweave::manifest::version v = after(ages);
  CHECK(commit::active_producers(v) == 1024);
  for (std::size_t i = 0; i < 300; ++i) v.summary.producers[i].finished = true;
  for (std::size_t i = 300; i < 400; ++i) v.summary.producers[i].retired = true;
  CHECK(commit::active_producers(v) == 624);
  CHECK(commit::active_producers(batchweave::manifest::version()) == 0);
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
