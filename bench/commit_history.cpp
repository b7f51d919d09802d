// What one commit costs after 0, 10,000 and 1,000,000 steps of history, and how many bytes consumers fetch for those they want.
//
// Commits: two producers commit one batch each in turn, so that every commit has to find the tail that the other one wrote. Counted: the
// requests and bytes under "log/"; timed: flush(), which is the commit (the batch is durable before). All histories are measured in the same
// rounds, so that a busy machine slows all of them. Amplification: whole worlds of consumers over a memory store, everything they read counted.
#include "run.hpp"
#include "support.hpp"

#include <batchweave/commit/every.hpp>
#include <batchweave/commit/protocol.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/manifest/binary.hpp>
#include <batchweave/manifest/naming.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/store/s3.hpp>
#include <batchweave/stream.hpp>

#include <cinttypes>
#include <filesystem>
#include <random>

namespace {

namespace bw = bench::bw;
namespace asio = bench::asio;
using bench::report;

void check(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

/// Writes `steps` committed steps of a producer "past" as manifest versions of up to `per_version` entries; their TGBs are never read.
/// No history means one step, so that every stream knows the same producers.
template <bw::object_store S>
asio::awaitable<void> write_history(S store, bw::manifest::stream_info stream, std::uint64_t steps, std::uint64_t per_version) {
  bw::random64 random(1);
  bw::manifest::version tail = bw::commit::genesis(stream);
  const bw::id128 owner = bw::id128::draw(random);
  tail = bw::commit::propose_open(tail, stream, "past", owner, 1).value();
  const bw::commit::incarnation me("past", 1, owner);
  std::uint64_t seq = 0;
  steps = std::max<std::uint64_t>(steps, 1);
  for (;;) {
    const auto bytes = bw::manifest::encode_version(tail);
    const std::string key = bw::manifest::log_key(tail.number);
    const bw::const_buffers body{bw::const_bytes(bytes)};
    const bw::put_condition absent = bw::put_condition::if_absent();
    bw::result<bw::put_outcome> put = co_await store.put(key, body, absent);
    check(put && put->applied(), "cannot write history version " + std::to_string(tail.number));
    if (seq == steps) co_return;
    std::vector<bw::manifest::tgb_entry> entries;
    // The last version is small, as the tail of a live stream is.
    const std::uint64_t n = std::max<std::uint64_t>(1, std::min(per_version, steps - seq - 1));
    for (std::uint64_t i = 0; i < n; ++i) {
      bw::manifest::tgb_entry e;
      e.producer = "past";
      e.epoch = 1;
      e.seq = seq++;
      e.bytes = 1u << 20;
      e.footer_offset = e.bytes - 200;
      entries.push_back(std::move(e));
    }
    bw::commit::commit_request request;
    request.batches(entries).nonce(bw::id128::draw(random)).unix_ns(1);
    tail = bw::commit::propose_commit(tail, stream, me, request).value();
  }
}

/// One stream with some history and two live producers.
template <bw::object_store S>
struct subject {
  using counted = bench::counted_store<S>;
  using producer = bw::basic_producer<counted, bw::commit::every<1000000>>;
  subject(S s, std::uint64_t h) : store(std::move(s)), history(h) {}
  counted store;
  std::uint64_t history;
  std::vector<producer> producers;
  std::vector<double> ms, requests, bytes;
};

template <bw::object_store S>
asio::awaitable<void> prepare(subject<S>* s, std::uint64_t per_version) {
  bw::stream_options so;
  so.slices(1).producers(3);
  const bw::manifest::stream_info info = co_await bw::create_stream(s->store, so);
  co_await write_history(s->store, info, s->history, per_version);
  for (const char* name : {"a", "b"}) {
    bw::producer_options po(name);
    po.seed(7);
    const bw::commit::every<1000000> policy;
    auto p = co_await bw::open_producer(s->store, po, policy);
    s->producers.push_back(std::move(p));
  }
}

template <bw::object_store S>
asio::awaitable<void> commit_rounds(std::vector<subject<S>>* subjects, std::size_t rounds) {
  constexpr std::size_t warm_up = 8;
  for (std::size_t r = 0; r < rounds + warm_up; ++r) {
    for (subject<S>& s : *subjects) {
      auto& p = s.producers[r % 2];
      std::vector<bw::byte_buffer> slices;
      slices.emplace_back(64);
      std::memset(slices[0].data(), 1, 64);
      bw::global_batch batch(std::move(slices));
      std::string state = "state";
      const bench::traffic before = s.store.counts().log;
      (void)co_await p.publish(std::move(batch), std::move(state));
      const bench::stopwatch watch;
      co_await p.flush();
      const double ms = watch.wall() * 1e3;
      const bench::traffic used = s.store.counts().log - before;
      if (r < warm_up) continue;
      s.ms.push_back(ms);
      s.requests.push_back(static_cast<double>(used.requests()));
      s.bytes.push_back(static_cast<double>(used.bytes()));
    }
  }
  for (subject<S>& s : *subjects) {
    for (auto& p : s.producers) co_await p.detach();
  }
}

template <bw::object_store S>
void measure_commits(asio::io_context& context, report& out, const std::string& kind, std::vector<subject<S>>& subjects,
                     std::size_t rounds, std::uint64_t per_version) {
  for (auto& s : subjects) {
    const bench::stopwatch watch;
    bench::run(context, prepare(&s, per_version));
    std::printf("  (%s: %" PRIu64 " steps of history written in %.1f s)\n", kind.c_str(), s.history, watch.wall());
  }
  bench::run(context, commit_rounds(&subjects, rounds));
  for (auto& s : subjects) {
    const auto& base = subjects.front();
    const std::string what = kind + ", " + std::to_string(s.history) + " steps of history: ";
    out.add(what + "requests per commit", bench::median(s.requests), "", bench::median(base.requests));
    out.add(what + "bytes per commit", bench::median(s.bytes), "B", bench::median(base.bytes));
    out.add(what + "commit p50", bench::median(s.ms), "ms", bench::median(base.ms));
    out.add(what + "commit p99", bench::percentile(s.ms, 0.99), "ms", bench::percentile(base.ms, 0.99));
    if (&s != &base) {
      out.expect(bench::median(s.requests) <= bench::median(base.requests), "no more requests than with no history");
      out.expect(bench::median(s.bytes) <= 1.1 * bench::median(base.bytes), "bytes within 10 % of no history");
      out.expect(bench::median(s.ms) <= 1.1 * bench::median(base.ms), "time within 10 % of no history");
    }
  }
}

template <bw::object_store S>
asio::awaitable<void> write_steps(S store, std::uint32_t slices, std::size_t slice_bytes, std::size_t steps) {
  bw::stream_options so;
  so.slices(slices);
  co_await bw::create_stream(store, so);
  bw::producer_options po("p");
  po.seed(3);
  const bw::commit::every<1> policy;
  auto producer = co_await bw::open_producer(store, po, policy);
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<bw::byte_buffer> all;
    for (std::uint32_t k = 0; k < slices; ++k) {
      all.emplace_back(slice_bytes);
      std::memset(all.back().data(), static_cast<int>(i + k), slice_bytes);
    }
    bw::global_batch batch(std::move(all));
    std::string state = std::to_string(i);
    (void)co_await producer.publish(std::move(batch), std::move(state));
  }
  co_await producer.close();
}

template <bw::object_store S>
asio::awaitable<void> read_rank(S store, std::uint32_t rank, std::uint32_t world, std::uint64_t* wanted) {
  bw::consumer_options co("run");
  co.rank(rank).world_size(world).start_at(0);
  auto consumer = co_await bw::open_consumer(store, co);
  for (;;) {
    std::optional<bw::slice> s = co_await consumer.next();
    if (!s) co_return;
    *wanted += s->bytes().size();
  }
}

void measure_amplification(asio::io_context& context, report& out, std::size_t slice_bytes, std::size_t steps) {
  constexpr std::uint32_t slices = 8;
  bw::memory_store store;
  bench::run(context, write_steps(store, slices, slice_bytes, steps));
  for (const std::uint32_t world : {1u, 2u, 4u, 8u}) {
    bench::counted_store<bw::memory_store> counted(store);
    std::uint64_t wanted = 0;
    std::vector<asio::awaitable<void>> ranks;
    for (std::uint32_t r = 0; r < world; ++r) ranks.push_back(read_rank(counted, r, world, &wanted));
    bench::run_all(context, std::move(ranks));
    check(wanted == std::uint64_t{slices} * slice_bytes * steps, "the ranks of a world of " + std::to_string(world) + " did not read everything once");
    const auto& c = counted.counts();
    const auto fetched = static_cast<double>(c.log.bytes_read + c.other.bytes_read);
    const auto requests = static_cast<double>(c.log.requests() + c.other.requests());
    const std::string what = "world " + std::to_string(world) + ", slices of " + bench::size_text(slice_bytes) + ": ";
    out.add(what + "bytes fetched", fetched / 1e6, "MB", static_cast<double>(wanted) / 1e6);
    out.add(what + "requests per rank and step", requests / (static_cast<double>(steps) * world), "");
    out.expect(fetched <= 1.02 * static_cast<double>(wanted), "at most 1.02 bytes fetched for each byte wanted");
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "commit_history [--json FILE] [--check] [--rounds N] [--histories 0,10000,1000000] [--per-version N] [--steps N] [--folder DIR]\n"
                        "               [--endpoint URL --bucket B] (keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)\n"
                        "  --only commits|amplification");
  const std::string json = args.text("json");
  const std::size_t rounds = args.count("rounds", 300);
  const std::uint64_t per_version = args.count("per-version", 1000);
  const std::size_t steps = args.count("steps", 100);
  const std::string folder = args.text("folder", (std::filesystem::temp_directory_path() / ("commit_history." + std::to_string(::getpid()))).string());
  const std::string endpoint = args.text("endpoint");
  const std::string bucket = args.text("bucket", "bench");
  const std::string only = args.text("only");
  std::vector<std::uint64_t> histories;
  std::istringstream list(args.text("histories", "0,10000,1000000"));
  for (std::string h; std::getline(list, h, ',');) histories.push_back(std::strtoull(h.c_str(), nullptr, 10));
  const bool check_promises = args.flag("check");
  args.done();

  try {
    asio::io_context context(1);
    report out("commits after history, and read amplification", json);
    if (only != "amplification") {
      {
        std::vector<subject<bw::memory_store>> subjects;
        for (const auto h : histories) subjects.emplace_back(bw::memory_store(), h);
        measure_commits(context, out, "memory", subjects, rounds, per_version);
      }
      {
        std::vector<subject<bw::file_store>> subjects;
        for (const auto h : histories) {
          const std::string root = folder + "/" + std::to_string(h);
          std::filesystem::create_directories(root);
          subjects.emplace_back(bw::file_store(root), h);
        }
        measure_commits(context, out, "folder", subjects, rounds, per_version);
      }
      std::filesystem::remove_all(folder);
      if (!endpoint.empty()) {
        std::vector<subject<bw::s3_store>> subjects;
        for (const auto h : histories) {
          bw::s3_config config;
          config.endpoint(endpoint).bucket(bucket).prefix("history/" + std::to_string(std::random_device{}()) + "/" + std::to_string(h));
          subjects.emplace_back(bw::s3_store(context.get_executor(), config), h);
        }
        measure_commits(context, out, "s3", subjects, rounds, per_version);
      }
    }
    if (only != "commits") {
      for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{1} << 20}) measure_amplification(context, out, bytes, steps);
    }
    out.write();
    if (check_promises && !out.all_kept()) return 3;
  } catch (const std::exception& e) {
    std::cerr << "commit_history: " << e.what() << '\n';
    return 1;
  }
}
