// Slice reads through the S3 client against the raw limit: same server, same ranges, same number in flight, one client thread.
//
// The server is another process, so that only the client's work is in "CPU s/GB". The raw side is an epoll loop without signing that receives
// into one reused buffer for each request in flight; the S3 side gets the same, through s3_store::get. Rounds alternate; medians count.
#include "raw_client.hpp"
#include "store_load.hpp"
#include "support.hpp"

#include <batchweave/store/s3.hpp>

#include <array>
#include <cstdlib>

namespace {

constexpr std::uint64_t object_bytes = std::uint64_t{256} << 20;

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
      if (only != "raw") bench::get_ranges(context, store, "range", object_bytes, length, buffers, std::min(0.3, seconds));
      if (only != "s3") raw.get(object_bytes, length, std::min(0.3, seconds));
      for (std::size_t r = 0; r < rounds; ++r) {
        if (only != "raw") a.push_back(bench::get_ranges(context, store, "range", object_bytes, length, buffers, seconds));
        if (only != "s3") b.push_back(raw.get(object_bytes, length, seconds));
        if (with_wrk) w.push_back(wrk(url + "/bucket/range", length, in_flight, seconds));
      }
      const std::string what = "get " + bench::size_text(length) + ": ";
      const auto row = [&](const std::string& name, const std::string& unit, auto f) {
        if (a.empty()) return report.add(what + "raw " + name, bench::median_of(b, f), unit);
        report.add(what + name, bench::median_of(a, f), unit, b.empty() ? bench::report::nan() : bench::median_of(b, f));
      };
      row("throughput", "GB/s", [](const bench::load& l) { return l.rate(); });
      row("requests", "1/s", [](const bench::load& l) { return l.requests_per_second(); });
      row("latency p50", "ms", [](const bench::load& l) { return bench::percentile(l.latencies, 0.5) * 1e3; });
      row("latency p99", "ms", [](const bench::load& l) { return bench::percentile(l.latencies, 0.99) * 1e3; });
      row("client CPU", "s/GB", [](const bench::load& l) { return l.cpu_per_gb(); });
      if (with_wrk) report.add(what + "wrk, one range again and again", bench::median(w), "GB/s");
      if (!a.empty() && !b.empty() && length >= (std::size_t{1} << 20)) {
        const auto rate = [](const bench::load& l) { return l.rate(); };
        report.expect(bench::median_of(a, rate) >= 0.8 * bench::median_of(b, rate), "at least 0.8 of the raw limit");
      }
    }
    report.write();
    if (check_promises && !report.all_kept()) return 3;
  } catch (const std::exception& e) {
    std::cerr << "slice_get: " << e.what() << '\n';
    return 1;
  }
}
