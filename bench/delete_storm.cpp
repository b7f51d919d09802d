// What a rank loses while reclaim removes many objects from the same store: the rate at which a consumer gets its slices with and without,
// in turns. The rank reads as fast as it can, so what the store spends on removals is taken from it: a training run, which waits for its
// GPU most of the time, loses less.
#include "latency_server.hpp"
#include "run.hpp"
#include "support.hpp"

#include <batchweave/batchweave.hpp>

#include <atomic>
#include <cstring>
#include <iostream>
#include <optional>
#include <thread>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

constexpr const char* usage =
    "delete_storm [--store URL] [--keys N] [--keys-per-second R] [--rounds N] [--slice-kib K] [--latency-ms MS] [--check] [--json FILE]\n"
    "  --store URL  an empty prefix of a store; default: a scripted server in a process of its own whose every answer takes MS milliseconds (15)\n"
    "  --keys N     objects that each round removes (default 5000)    --keys-per-second R  as reclaim_options (default: its own default)";
constexpr std::uint32_t slices = 4;
constexpr std::uint64_t steps = 64;

asio::awaitable<void> publish_steps(bw::any_store store, std::size_t slice_bytes) {
  const bw::stream_options fresh = bw::stream_options().slices(slices);
  co_await bw::create_stream(store, fresh);
  const bw::producer_options mine("data");
  auto producer = co_await bw::open_producer(store, mine);
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::vector<bw::byte_buffer> parts;
    for (std::uint32_t k = 0; k < slices; ++k) {
      bw::byte_buffer b(slice_bytes);
      std::memset(b.data(), static_cast<int>(step), b.size());
      parts.push_back(std::move(b));
    }
    bw::global_batch batch(std::move(parts));
    const std::string state = "after " + std::to_string(step);
    co_await producer.publish(std::move(batch), state);
  }
  co_await producer.flush();
}

// What a producer leaves that is killed between its uploads and its commit: reclaim removes it once another incarnation is open.
asio::awaitable<void> leave_orphans(bw::any_store store, std::size_t keys) {
  const bw::producer_options mine("crashed");
  auto producer = co_await bw::open_producer(store, mine);
  std::uint64_t next = producer.next_seq();
  const std::uint64_t end = next + keys, epoch = producer.epoch();
  const std::string body(1024, 'x');
  bw::task_group tasks(co_await asio::this_coro::executor);
  for (int i = 0; i < 32; ++i) {
    tasks.spawn([](bw::any_store s, std::uint64_t of, std::uint64_t& seq, std::uint64_t last, const std::string& text) -> asio::awaitable<void> {
      while (seq < last) {
        const std::string key = bw::manifest::tgb_key("crashed", of, seq++);
        const bw::const_buffers pieces{bw::as_bytes(text)};
        const bw::put_condition always;
        const bw::result<bw::put_outcome> put = co_await s.put(key, pieces, always);
        if (!put) throw bw::error(put.error());
      }
    }(store, epoch, next, end, body));
  }
  co_await tasks.join();
  auto after = co_await bw::open_producer(store, mine);
}

// Reads the stream over and over until `stop`; the bytes of a second.
asio::awaitable<void> read_until(bw::any_store store, std::atomic<bool>& stop, double& rate) {
  std::uint64_t bytes = 0;
  const bench::stopwatch time;
  while (!stop) {
    bw::consumer_options o("storm");
    o.rank(0).world_size(slices).start_at(0).prefetch(8);
    auto consumer = co_await bw::open_consumer(store, o);
    for (std::uint64_t step = 0; step < steps && !stop; ++step) {
      const std::optional<bw::slice> got = co_await consumer.next();
      if (!got || got->part(0).front() != static_cast<std::byte>(step)) throw std::runtime_error("step " + std::to_string(step) + " is not what was published");
      bytes += got->part(0).size();
    }
  }
  rate = static_cast<double>(bytes) / time.wall();
}

// MB/s of a rank while `beside` runs in another thread.
template <class Beside>
double rate_beside(const std::string& url, Beside beside) {
  std::atomic<bool> stop{false};
  double rate = 0;
  std::exception_ptr failed;
  std::thread reader([&] {
    try {
      asio::io_context context;
      bench::run(context, read_until(bw::open_store(context.get_executor(), url).value(), stop, rate));
    } catch (...) {
      failed = std::current_exception();
    }
  });
  try {
    beside();
  } catch (...) {
    failed = std::current_exception();
  }
  stop = true;
  reader.join();
  if (failed) std::rethrow_exception(failed);
  return rate / 1e6;
}

}  // namespace

int main(int argc, char** argv) try {
  bench::arguments args(argc, argv, usage);
  const bool serve = args.text("as") == "server";
  const double latency = args.number("latency-ms", 15);
  if (serve) {
    args.done();
    return bench::serve_with_latency(latency);
  }
  std::string url = args.text("store");
  const std::size_t keys = args.count("keys", 5000), rounds = args.count("rounds", 3), slice_bytes = args.count("slice-kib", 1024) * 1024;
  bw::reclaim_options options;
  const double per_second = args.number("keys-per-second", options.keys_per_second());
  options.keys_per_second(per_second);
  const bool check = args.flag("check");
  bench::report report("a rank beside a delete storm", args.text("json"));
  args.done();

  std::optional<bench::latency_server> server;
  if (url.empty()) url = server.emplace(latency).url();
  const auto open = [&](asio::io_context& context) { return bw::open_store(context.get_executor(), url).value(); };
  asio::io_context context;
  bench::run(context, publish_steps(open(context), slice_bytes));

  std::vector<double> quiet, storm, loss, removed;
  for (std::size_t round = 0; round < rounds; ++round) {
    bench::run(context, leave_orphans(open(context), keys));
    double storm_seconds = 0;
    storm.push_back(rate_beside(url, [&] {
      const bench::stopwatch time;
      asio::io_context own;
      std::optional<bw::reclaim_report> done;
      const auto sweep = [&]() -> asio::awaitable<void> { done = co_await bw::reclaim(open(own), options); };
      bench::run(own, sweep());
      storm_seconds = time.wall();
      if (done->orphans.keys != keys) throw std::runtime_error("reclaim removed " + std::to_string(done->orphans.keys) + " of " + std::to_string(keys) + " objects");
    }));
    quiet.push_back(rate_beside(url, [&] { std::this_thread::sleep_for(std::chrono::duration<double>(storm_seconds)); }));
    removed.push_back(static_cast<double>(keys) / storm_seconds);
    loss.push_back(100 * (1 - storm.back() / quiet.back()));
  }
  report.add("removed", bench::percentile(removed, 0.5), "keys/s");
  report.add("a rank alone", bench::percentile(quiet, 0.5), "MB/s");
  report.add("a rank beside the storm", bench::percentile(storm, 0.5), "MB/s", bench::percentile(quiet, 0.5));
  report.add("loss", bench::percentile(loss, 0.5), "%", 10);
  if (check) report.expect(bench::percentile(loss, 0.5) < 10, "a delete storm takes less than 10 % of a rank's throughput");
  report.write();
  return report.all_kept() ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << "delete_storm: " << e.what() << '\n';
  return 2;
}
