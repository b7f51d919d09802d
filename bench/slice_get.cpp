// Slice reads through the S3 client against the raw limit: same server, same ranges, same number in flight, one client thread.
//
// The server is another process, so that only the client's work is in "CPU s/GB". The raw side is an epoll loop without signing that receives
// into one reused buffer for each request in flight; the S3 side gets the same, through s3_store::get. Rounds alternate; medians count.
#include "raw_client.hpp"
#include "run.hpp"
#include "support.hpp"

#include <batchweave/store/s3.hpp>

#include <array>
#include <cstdlib>

namespace {

constexpr std::uint64_t object_bytes = std::uint64_t{256} << 20;

struct round_state {
  bench::range_walk walk;
  std::size_t length;
  double seconds;
  bench::stopwatch watch;
  bench::load result;
};

template <bench::bw::object_store S>
bench::asio::awaitable<void> read_slices(S store, std::string key, round_state* state, bench::bw::mutable_bytes buffer) {
  while (state->watch.wall() < state->seconds) {
    const std::uint64_t offset = state->walk.next();
    const bench::bw::byte_range range(offset, state->length);
    bench::bw::mutable_buffers into{buffer};
    const double started = bench::now_seconds();
    bench::bw::result<bench::bw::read_outcome> got = co_await store.get(key, range, into);
    const double ended = bench::now_seconds();
    if (!got) throw bench::bw::error(got.error());
    std::uint64_t first = 0;
    std::memcpy(&first, buffer.data(), sizeof first);
    if (got->bytes() != state->length || first != bench::pattern_at(offset)) {
      throw std::runtime_error(key + " " + range.to_string() + ": wrong length or bytes");
    }
    state->result.latencies.push_back(ended - started);
    state->result.bytes += got->bytes();
    ++state->result.requests;
  }
}

template <bench::bw::object_store S>
bench::load drive(bench::asio::io_context& context, S store, const std::string& key, std::size_t length,
                  std::vector<std::vector<std::byte>>& buffers, double seconds) {
  round_state state{bench::range_walk(object_bytes, length), length, seconds, bench::stopwatch(), bench::load()};
  std::vector<bench::asio::awaitable<void>> work;
  for (auto& b : buffers) work.push_back(read_slices(store, key, &state, bench::bw::mutable_bytes(b)));
  bench::run_all(context, std::move(work));
  state.result.wall = state.watch.wall();
  state.result.cpu = state.watch.cpu();
  return std::move(state.result);
}

// GB/s that wrk sees, or NaN when it is not installed.
double wrk(const std::string& url, std::size_t length, std::size_t in_flight, double seconds) {
  const std::string command = "wrk -t1 -c" + std::to_string(in_flight) + " -d" + std::to_string(static_cast<int>(std::max(1.0, seconds))) +
                              "s -H 'Range: bytes=0-" + std::to_string(length - 1) + "' " + url + " 2>/dev/null";
  double requests = bench::report::nan();
  if (FILE* p = ::popen(command.c_str(), "r")) {
    std::array<char, 512> line;
    while (std::fgets(line.data(), line.size(), p)) std::sscanf(line.data(), "Requests/sec: %lf", &requests);
    ::pclose(p);
  }
  return requests * static_cast<double>(length) / 1e9;
}

template <class F>
double median_of(const std::vector<bench::load>& rounds, F f) {
  std::vector<double> v;
  v.reserve(rounds.size());
  for (const auto& r : rounds) v.push_back(f(r));
  return bench::median(v);
}

}  // namespace

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "slice_get [--json FILE] [--check] [--seconds S] [--rounds N] [--in-flight N] [--length BYTES] [--endpoint URL] [--wrk] [--only s3|raw]\n"
                        "  --endpoint: another server, http://host:port, that answers GET /bucket/range like bench/http_server");
  const std::string json = args.text("json");
  const double seconds = args.number("seconds", 2);
  const std::size_t rounds = args.count("rounds", 3);
  const std::size_t in_flight = args.count("in-flight", 8);
  const std::size_t only_length = args.count("length", 0);
  const std::string endpoint = args.text("endpoint");
  const std::string only = args.text("only");
  const bool with_wrk = args.flag("wrk");
  const bool check_promises = args.flag("check");
  args.done();

  try {
    std::optional<bench::server_process> server;
    if (endpoint.empty()) server.emplace(object_bytes);
    const std::string url = server ? server->url() : endpoint;
    const std::size_t colon = url.rfind(':');
    const std::string host = url.substr(url.find("//") + 2, colon - url.find("//") - 2);
    const std::string port = url.substr(colon + 1);

    bench::asio::io_context context(1);
    bench::bw::s3_config config;
    config.endpoint(url).bucket("bucket").region("us-east-1").credentials("bench", "bench-secret");
    bench::bw::s3_store store(context.get_executor(), config);

    bench::report report("slice reads, " + std::to_string(in_flight) + " in flight, one client thread, " + url, json);
    std::vector<std::size_t> lengths{std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20};
    if (only_length) lengths = {only_length};
    for (const std::size_t length : lengths) {
      bench::raw_client raw(host, port, "/bucket/range", in_flight);
      // One for each request in flight, reused, like those of the raw client.
      std::vector<std::vector<std::byte>> buffers(in_flight, std::vector<std::byte>(length));
      std::vector<bench::load> a, b;
      std::vector<double> w;
      // Unmeasured: connections, page faults and the server's caches.
      if (only != "raw") drive(context, store, "range", length, buffers, std::min(0.3, seconds));
      if (only != "s3") raw.get(object_bytes, length, std::min(0.3, seconds));
      for (std::size_t r = 0; r < rounds; ++r) {
        if (only != "raw") a.push_back(drive(context, store, "range", length, buffers, seconds));
        if (only != "s3") b.push_back(raw.get(object_bytes, length, seconds));
        if (with_wrk) w.push_back(wrk(url + "/bucket/range", length, in_flight, seconds));
      }
      const std::string what = "get " + bench::size_text(length) + ": ";
      const auto row = [&](const std::string& name, const std::string& unit, auto f) {
        if (a.empty()) return report.add(what + "raw " + name, median_of(b, f), unit);
        report.add(what + name, median_of(a, f), unit, b.empty() ? bench::report::nan() : median_of(b, f));
      };
      row("throughput", "GB/s", [](const bench::load& l) { return l.rate(); });
      row("requests", "1/s", [](const bench::load& l) { return l.requests_per_second(); });
      row("latency p50", "ms", [](const bench::load& l) { return bench::percentile(l.latencies, 0.5) * 1e3; });
      row("latency p99", "ms", [](const bench::load& l) { return bench::percentile(l.latencies, 0.99) * 1e3; });
      row("client CPU", "s/GB", [](const bench::load& l) { return l.cpu_per_gb(); });
      if (with_wrk) report.add(what + "wrk, one range again and again", bench::median(w), "GB/s");
      if (!a.empty() && !b.empty() && length >= (std::size_t{1} << 20)) {
        const auto rate = [](const bench::load& l) { return l.rate(); };
        report.expect(median_of(a, rate) >= 0.8 * median_of(b, rate), "at least 0.8 of the raw limit");
      }
    }
    report.write();
    if (check_promises && !report.all_kept()) return 3;
  } catch (const std::exception& e) {
    std::cerr << "slice_get: " << e.what() << '\n';
    return 1;
  }
}
