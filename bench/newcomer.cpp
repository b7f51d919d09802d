// What a consumer that starts at any step of a long stream costs before its first slice is asked for, and what sealing costs the stream.
// The log is written as producers would, in memory; every request of the newcomer waits --latency-ms first.
#include "support.hpp"

#include <batchweave/batchweave.hpp>
#include <batchweave/testing/faulty_store.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <memory>
#include <optional>

namespace bw = batchweave;
namespace m = batchweave::manifest;
namespace asio = boost::asio;
using bw::testing::action;
using bw::testing::fault_plan;

namespace {

struct settings {
  std::uint64_t steps = 1000000, each = 16, seal_after = 64, opens = 200;
  double latency_ms = 15;
  bool check = false;
};
struct outcome {
  std::uint64_t versions = 0, segments = 0, newest_bytes = 0, segment_bytes_written = 0, seals = 0;
  std::vector<double> requests, milliseconds;
};

asio::awaitable<void> put(bw::memory_store store, std::string key, bw::const_bytes bytes) {
  const bw::const_buffers body{bytes};
  const bw::put_condition absent = bw::put_condition::if_absent();
  const bw::result<bw::put_outcome> done = co_await store.put(key, body, absent);
  if (!done || !done->applied()) throw std::runtime_error("cannot write " + key);
}

asio::awaitable<std::shared_ptr<const m::version>> newest(bw::memory_store store, m::stream_info info) {
  const bw::result<bw::commit::tail_view> tail = co_await bw::commit::find_tail(store, info, 0);
  co_return tail.value().version;
}

asio::awaitable<void> write_log(bw::memory_store store, settings s, outcome& out) {
  const bw::stream_options fresh = bw::stream_options().slices(1024);
  const m::stream_info info = co_await bw::create_stream(store, fresh);
  const bw::commit::incarnation me("producer-0", 1, bw::id128(1, 1));
  m::version v = bw::commit::genesis(info);
  bw::result<m::version> next = bw::commit::propose_open(v, info, me.producer, me.owner, 0);
  bw::random64 random(3);
  std::uint64_t since = 0;
  for (;;) {
    const auto bytes = m::encode_version(next.value());
    co_await put(store, m::log_key(next->number), bw::const_bytes(bytes));
    v = std::move(*next);
    if (v.summary.next_step >= s.steps) break;
    if (++since == s.seal_after) {
      since = 0;
      const bw::seal_options o = bw::seal_options().after_versions(s.seal_after);
      co_await bw::seal(store, o);
      v = *co_await newest(store, info);
      ++out.seals;
      out.segment_bytes_written += v.summary.segments.empty() ? 0 : v.summary.segments.back().bytes;
    }
    std::vector<m::tgb_entry> entries(1 + random() % (2 * s.each));
    for (std::size_t k = 0; k < entries.size(); ++k) {
      m::tgb_entry& e = entries[k];
      e.producer = me.producer;
      e.epoch = 1;
      e.seq = v.summary.next_step + k;
      e.layout.count = info.slices;
      e.layout.alignment = 8;
      e.layout.fixed_size = 4096;
      e.footer_offset = e.layout.data_end();
      e.bytes = e.footer_offset + 300;
      e.samples = 4096;
    }
    bw::commit::commit_request request;
    request.batches(entries).nonce(bw::id128(2, v.number));
    next = bw::commit::propose_commit(v, info, me, request);
  }
  const auto last = co_await newest(store, info);
  out.versions = last->number;
  out.segments = last->summary.segments.size();
  out.newest_bytes = m::encode_version(*last).size();
}

// Until the first slice is asked for.
asio::awaitable<void> open_at(bw::memory_store memory, std::uint64_t step, settings s, outcome& out) {
  fault_plan plan;
  bw::any_clock clock;
  const bw::time_point begun = clock.now();
  bw::time_point asked{};
  const bw::duration latency(static_cast<bw::duration::rep>(s.latency_ms * 1e6));
  plan.hook([&](const bw::testing::operation& o) -> std::optional<action> {
    if (o.key().starts_with("tgb/") && asked == bw::time_point{}) asked = clock.now();
    return action().after(latency);
  });
  bw::testing::faulty_store<bw::memory_store> store(memory, plan);
  const bw::consumer_options o = bw::consumer_options("new").start_at(step).prefetch(1);
  auto consumer = co_await bw::open_consumer(store, o);
  const auto r = co_await bw::as_result(consumer.next());
  if (r || r.error().code() != bw::errc::object_missing) throw std::runtime_error("the log here has no batches");
  // One request at a time until then, each after `latency`: what came later was read ahead.
  const double ms = std::chrono::duration<double, std::milli>(asked - begun).count();
  std::uint64_t requests = 0;
  for (const auto& a : plan.operations()) {
    if (a.key().starts_with("tgb/")) break;
    ++requests;
  }
  out.requests.push_back(static_cast<double>(requests));
  out.milliseconds.push_back(ms);
}

asio::awaitable<void> measure(settings s, outcome& out) {
  bw::memory_store memory;
  co_await write_log(memory, s, out);
  bw::random64 random(11);
  for (std::uint64_t i = 0; i < s.opens; ++i) {
    std::uint64_t step = random() % s.steps;
    if (i % 4 == 0) step = s.steps - 1 - random() % std::min(s.steps, s.seal_after * s.each);  // what is not sealed yet
    co_await open_at(memory, step, s, out);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::arguments a(argc, argv,
                     "usage: newcomer [--steps N] [--entries PER_VERSION] [--seal-after VERSIONS] [--opens N] [--latency-ms L] [--check]\n"
                     "exit status: 0 done; 2 usage; 3 with --check: more than 6 requests, or more than 100 ms with a latency of 15 ms");
  settings s;
  s.steps = a.count("steps", s.steps);
  s.each = std::max<std::size_t>(1, a.count("entries", s.each));
  s.seal_after = std::max<std::size_t>(1, a.count("seal-after", s.seal_after));
  s.opens = std::max<std::size_t>(1, a.count("opens", s.opens));
  s.latency_ms = a.number("latency-ms", s.latency_ms);
  s.check = a.flag("check");
  a.done();
  asio::io_context io;
  outcome out;
  std::exception_ptr thrown;
  asio::co_spawn(io, measure(s, out), [&](std::exception_ptr e) { thrown = e; });
  io.run();
  if (thrown) std::rethrow_exception(thrown);
  std::sort(out.requests.begin(), out.requests.end());
  std::sort(out.milliseconds.begin(), out.milliseconds.end());
  const auto at = [](const std::vector<double>& sorted, double share) {
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
  };
  std::cout << s.steps << " steps in " << out.versions << " versions; " << out.segments << " segments, the newest version has "
            << out.newest_bytes << " bytes; " << out.seals << " seals wrote " << out.segment_bytes_written / (1 << 20) << " MiB of segments\n"
            << out.requests.size() << " newcomers at " << s.latency_ms << " ms a request: requests p50 " << at(out.requests, 0.5) << " max "
            << out.requests.back() << ", until the first slice is asked for p50 " << at(out.milliseconds, 0.5) << " ms max "
            << out.milliseconds.back() << " ms\n";
  const bool kept = out.requests.back() <= 6 && (s.latency_ms > 15 || out.milliseconds.back() <= 100);
  if (s.check && !kept) return 3;
  return 0;
}
