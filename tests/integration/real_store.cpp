// The S3 store against a real server named by BATCHWEAVE_TEST_S3 (tests/services/with-store.sh provides one); skipped without it.
#include "support/catch.hpp"
#include "support/run.hpp"

#include <batchweave/aio/task_group.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/open.hpp>
#include <batchweave/store/probe.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/store_conformance.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

/// The URL in a variable with `/name-<process>` added to its prefix; empty, with a note, when the variable is absent.
std::string url_of(const std::string& name, const char* variable = "BATCHWEAVE_TEST_S3") {
  const char* base = std::getenv(variable);
  if (base == nullptr || *base == '\0') {
    WARN("skipped: " << variable << " names no store");
    return {};
  }
  std::string url(base);
  url.insert(std::min(url.find('?'), url.size()), "/" + name + "-" + std::to_string(getpid()));
  return url;
}

bw::any_store opened(asio::io_context& context, const std::string& url) {
  bw::result<bw::any_store> store = bw::open_store(context.get_executor(), url);
  REQUIRE(store.has_value());
  return *store;
}

/// What a real store is known to do otherwise than S3. None of it matters to a stream; everything else must conform.
bool known(const std::string& kind, const bw::testing::conformance_section& s, const std::string& violation) {
  // Objects are files there: a key cannot be another key's folder, and a folder's name in a key is resolved.
  if (kind == "versitygw") return s.name == "nested" || (s.name == "keys" && violation.find("list returns special characters changed") != std::string::npos);
  return false;
}

asio::awaitable<void> conformance(bw::any_store store, std::string kind, std::vector<std::string>& wrong) {
  const bw::random64 random(11);
  std::vector<bw::testing::conformance_section> sections = co_await bw::testing::check_store_by_section(store, random);
  for (const auto& s : sections) {
    for (const auto& v : s.violations) {
      if (!known(kind, s, v)) wrong.push_back(s.name + ": " + v);
    }
  }
}

/// Of 32 racers on one key, half go through each gateway: their winners.
struct gateway_race {
  std::string key;
  std::vector<std::string> winners;
  std::vector<std::string> failed;
};

asio::awaitable<void> race(bw::any_store store, std::shared_ptr<gateway_race> r, std::string text) {
  const bw::const_buffers body{bw::as_bytes(text)};
  const bw::put_condition absent = bw::put_condition::if_absent();
  bw::result<bw::put_outcome> put = co_await store.put(r->key, body, absent);
  if (!put) r->failed.push_back(put.error().what());
  else if (put->applied()) r->winners.push_back(text);
}

asio::awaitable<void> gateway_rounds(bw::any_store first, bw::any_store second, int rounds, int& good) {
  for (int i = 0; i < rounds; ++i) {
    auto r = std::make_shared<gateway_race>();
    r->key = "race/" + std::to_string(i);
    bw::task_group group(co_await asio::this_coro::executor);
    for (int racer = 0; racer < 32; ++racer) group.spawn(race(racer % 2 ? first : second, r, "racer " + std::to_string(racer)));
    co_await group.join();
    CHECK(r->failed == std::vector<std::string>());
    CHECK(r->winners.size() == 1);
    for (bw::any_store* way : {&first, &second}) {
      const std::size_t expect = 64, limit = 4096;
      bw::result<std::optional<bw::byte_buffer>> there = co_await bw::read_object(*way, r->key, expect, limit);
      REQUIRE(there.has_value());
      REQUIRE(there->has_value());
      CHECK(r->winners == std::vector<std::string>{std::string(bw::as_text((*there)->bytes()))});
    }
    ++good;
  }
}

constexpr std::uint32_t producers = 3, steps_each = 6, slices = 4;

std::string content(const std::string& producer, std::uint64_t seq, std::uint32_t slice) {
  return producer + " batch " + std::to_string(seq) + " slice " + std::to_string(slice);
}

asio::awaitable<void> produce(bw::any_store store, std::string name, int& running) {
  bw::producer_options options(name);
  auto producer = co_await bw::open_producer(store, options);
  for (std::uint64_t seq = 0; seq < steps_each; ++seq) {
    std::vector<bw::byte_buffer> parts;
    for (std::uint32_t i = 0; i < slices; ++i) parts.push_back(bw::byte_buffer::copy_of(bw::as_bytes(content(name, seq, i))));
    bw::global_batch batch(std::move(parts));
    std::string state = std::to_string(seq + 1);
    co_await producer.publish(std::move(batch), std::move(state));
  }
  co_await producer.close();
  --running;
}

asio::awaitable<void> consume(bw::any_store store, std::uint32_t rank, std::vector<std::string>& seen, int& running) {
  bw::consumer_options options("run");
  options.rank(rank).world_size(slices).start_at(0);
  auto consumer = co_await bw::open_consumer(store, options);
  for (;;) {
    auto slice = co_await consumer.next();
    if (!slice) break;
    seen.emplace_back(bw::as_text(slice->bytes()));
  }
  --running;
}

}  // namespace

TEST_CASE("A real S3 store conforms") {
  const std::string url = url_of("conformance");
  if (url.empty()) return;
  asio::io_context context;
  const char* kind = std::getenv("BATCHWEAVE_TEST_S3_KIND");
  std::vector<std::string> wrong;
  test::run(context, conformance(opened(context, url), kind ? kind : "", wrong));
  CHECK(wrong == std::vector<std::string>());
}

TEST_CASE("CW-09 two gateways of a real S3 store agree on the one winner of every race") {
  const std::string url = url_of("race"), second = url_of("race", "BATCHWEAVE_TEST_S3_SECOND");
  if (url.empty() || second.empty()) return;
  asio::io_context context;
  int good = 0;
  constexpr int rounds = 20;
  test::run(context, gateway_rounds(opened(context, url), opened(context, second), rounds, good));
  CHECK(good == rounds);
}

TEST_CASE("I1 I2 I3 three producers race on a real S3 store: every rank reads every batch once, in one order") {
  const std::string url = url_of("stream");
  if (url.empty()) return;
  const std::string second_url = url_of("stream", "BATCHWEAVE_TEST_S3_SECOND");
  asio::io_context context;
  const bw::any_store store = opened(context, url);
  const bw::any_store second = second_url.empty() ? store : opened(context, second_url);  // half of the work through another gateway
  auto create = [](bw::any_store s) -> asio::awaitable<void> {
    bw::stream_options options;
    options.slices(slices).producers(producers);
    co_await bw::create_stream(s, options);
  };
  test::run(context, create(store));

  int running = producers + slices;
  std::vector<std::vector<std::string>> seen(slices);
  std::vector<std::exception_ptr> thrown;
  const auto note = [&thrown](std::exception_ptr e) {
    if (e) thrown.push_back(e);
  };
  for (std::uint32_t p = 0; p < producers; ++p) {
    asio::co_spawn(context, produce(p % 2 ? store : second, "p" + std::to_string(p), running), note);
  }
  for (std::uint32_t r = 0; r < slices; ++r) asio::co_spawn(context, consume(r % 2 ? store : second, r, seen[r], running), note);
  context.restart();
  const auto limit = std::chrono::steady_clock::now() + test::hang_guard;
  while (running > 0 && thrown.empty() && std::chrono::steady_clock::now() < limit) context.run_one_for(std::chrono::seconds(1));
  if (!thrown.empty()) std::rethrow_exception(thrown.front());
  REQUIRE(running == 0);

  std::map<std::string, std::uint64_t> next;
  REQUIRE(seen[0].size() == producers * steps_each);
  for (std::size_t step = 0; step < seen[0].size(); ++step) {
    const std::string producer = seen[0][step].substr(0, 2);
    const std::uint64_t seq = next[producer]++;
    for (std::uint32_t r = 0; r < slices; ++r) {
      REQUIRE(seen[r].size() == seen[0].size());
      CHECK(seen[r][step] == content(producer, seq, r));
    }
  }
  CHECK(next.size() == producers);
}
