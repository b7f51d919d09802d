// One S3 store used from several strands on several threads, with everything shared in motion: connections, keys, window, retries, hedges.
#include "support/catch.hpp"

#include <batchweave/aio/task_group.hpp>
#include <batchweave/store/s3.hpp>
#include <batchweave/testing/s3_server.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace bw = batchweave;

namespace {

asio::awaitable<bw::result<bw::s3::credentials>> short_lived(std::shared_ptr<std::atomic<int>> handed_out) {
  bw::any_clock clock;
  co_await clock.wait_for(2ms);
  bw::s3::credentials c("testkey", "testsecret");
  c.expires(clock.wall_now() + 5100ms);  // good for 100 ms: the last five seconds do not count
  handed_out->fetch_add(1);
  co_return c;
}

asio::awaitable<void> work(bw::s3_store store, std::string name, int rounds, std::atomic<int>& good) {
  for (int i = 0; i < rounds; ++i) {
    const std::string key = name + "/" + std::to_string(i), text = "value of " + key;
    bw::const_buffers body{bw::as_bytes(text)};
    const bw::put_condition absent = bw::put_condition::if_absent();
    const auto put = co_await store.put(key, body, absent);
    std::string bytes(text.size(), '?');
    bw::mutable_buffers into{bw::mutable_bytes(reinterpret_cast<std::byte*>(bytes.data()), bytes.size())};
    const bw::byte_range range(0, text.size());
    const auto got = co_await store.get(key, range, into);
    const auto info = co_await store.head(key);
    const auto page = co_await store.list(name + "/", "", 1000);
    // A PUT whose answer was lost may find its own object.
    if (put && got && got->found() && bytes == text && info && *info && page && page->objects().size() == static_cast<std::size_t>(i + 1)) good.fetch_add(1);
  }
}

}  // namespace

TEST_CASE("an S3 store is shared by strands on four threads") {
  constexpr int workers = 8, rounds = 25;
  asio::io_context io;
  const auto handed_out = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> good{0}, ended{0};
  std::vector<std::string> errors;
  {
    bw::testing::s3_server server(io.get_executor());
    for (const unsigned n : {20u, 21u, 22u, 90u, 91u, 200u}) server.on("*").nth(n).reply(503, "SlowDown");
    for (const unsigned n : {50u, 150u, 250u, 350u}) server.on("*").nth(n).drop();
    for (const unsigned n : {100u, 160u}) server.on("GET").nth(n).latency(100ms);
    bw::retry_policy retry;
    retry.base(1ms).cap(5ms);
    bw::s3_config config;
    config.endpoint(server.endpoint()).bucket("test").region("us-east-1").retry(retry).max_connections(6).hedge_share(0.05).seed(3);
    config.credentials([handed_out] { return short_lived(handed_out); });
    std::optional<bw::s3_store> store(std::in_place, io.get_executor(), config);
    std::vector<bw::task_group> groups;
    for (int w = 0; w < workers; ++w) {
      groups.emplace_back(asio::make_strand(io));
      groups.back().spawn(work(*store, "w" + std::to_string(w), rounds, good));
    }
    auto wait = [](std::vector<bw::task_group> all, std::atomic<int>& done, asio::io_context& context) -> asio::awaitable<void> {
      for (auto& g : all) co_await g.join();
      done = 1;
      context.stop();
    };
    auto waiting = wait(groups, ended, io);
    asio::co_spawn(asio::make_strand(io), std::move(waiting), [](std::exception_ptr e) {
      if (e) std::rethrow_exception(e);
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&io] { io.run_for(100s); });
    for (auto& t : threads) t.join();
    errors = server.errors();
    CHECK(store->client().retries() >= 4);
    store.reset();
  }
  CHECK(ended == 1);
  CHECK(good == workers * rounds);
  CHECK(errors.empty());
  CHECK(handed_out->load() >= 1);
}
