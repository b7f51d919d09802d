// The S3 client against the raw limit, the AWS CRT and Rust's object_store: GETs of ranges and PUTs, plain and TLS, one and two threads.
//
// The server is another process: nginx with a file of 1 GiB where it is installed (uploads go to bench/range_server.hpp, which drops them;
// over TLS through nginx), else the range server for both, without TLS. --store measures against a real store instead. Raw is an epoll loop
// without signing that receives into one reused buffer for each request in flight. The CRT and object_store run in a Python process each
// (awscrt, obstore), with as many threads of their own and with a copy into contiguous memory where they deliver pieces. Every client
// checks the length and the first bytes of every range. All clients take turns in every round; medians count.
#include "child.hpp"
#include "nginx.hpp"
#include "raw_client.hpp"
#include "store_load.hpp"
#include "support.hpp"

#include <batchweave/store/s3.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#ifndef BENCH_SOURCE_DIR
#define BENCH_SOURCE_DIR "bench"
#endif

namespace {

namespace bw = bench::bw;
namespace asio = bench::asio;

constexpr const char* summed = "obstore+sha256";
constexpr const char* peers[] = {"awscrt", "obstore", summed};

/// Where one measurement goes, and as whom.
struct place {
  bw::s3_config config;
  bool signed_raw = false;  // the server checks signatures
  std::string url() const { return config.endpoint(); }
  bw::s3::endpoint at() const { return *config.resolved_endpoint(); }
  std::string base() const { return "/" + config.bucket() + "/" + (config.prefix().empty() ? "" : config.prefix() + "/"); }
};

/// One round's figures, of whichever client.
struct figures {
  double rate = bench::report::nan(), requests = rate, p50 = rate, p99 = rate, cpu = rate;
  figures() = default;
  explicit figures(const bench::load& l)
      : rate(l.rate()), requests(l.requests_per_second()), p50(bench::percentile(l.latencies, 0.5)), p99(bench::percentile(l.latencies, 0.99)),
        cpu(l.cpu_per_gb()) {}
};

struct cell {
  bool put;
  std::size_t length, in_flight, threads;
  bool tls;
  std::string name() const {
    return std::string(put ? "put " : "get ") + bench::size_text(length) + ", " + std::to_string(in_flight) + " in flight, " + (tls ? "https" : "http") +
           ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }
};

/// A client under measurement; run() is one round.
class contender {
 public:
  virtual ~contender() = default;
  virtual figures run(const cell& c, double seconds) = 0;
};

/// Our client: one io_context and one store for each thread.
class ours : public contender {
 public:
  ours(const place& to, const cell& c, std::uint64_t object) : object_(object), body_(c.put ? c.length : 0, std::byte{7}) {
    const std::size_t each = c.in_flight / c.threads;
    for (std::size_t t = 0; t < c.threads; ++t) {
      auto& w = workers_.emplace_back(std::make_unique<worker>(to.config));
      if (!c.put) w->buffers.assign(each, std::vector<std::byte>(c.length));
    }
  }
  figures run(const cell& c, double seconds) override {
    return figures(bench::on_threads(c.threads, [&](std::size_t t) {
      worker& w = *workers_[t];
      if (!c.put) return bench::get_ranges(w.context, w.store, "range", object_, c.length, w.buffers, seconds);
      const std::string key = "put" + std::to_string(t) + "-";
      return bench::put_objects(w.context, w.store, key, bw::const_bytes(body_), c.in_flight / c.threads, seconds);
    }));
  }

 private:
  struct worker {
    explicit worker(const bw::s3_config& config) : context(1), store(context.get_executor(), config) {}
    asio::io_context context;
    bw::s3_store store;
    std::vector<std::vector<std::byte>> buffers;
  };
  std::uint64_t object_;
  std::vector<std::byte> body_;
  std::vector<std::unique_ptr<worker>> workers_;
};

/// Header lines that sign a request ahead of its sending. The Range header is not among what is signed.
bench::raw_client::more_headers signatures(const bw::s3_config& config) {
  auto signer = std::make_shared<bw::s3::signer>();
  return [signer, config](const std::string& method, const std::string& path) {
    const std::string date = bw::s3::amz_date(bw::real_clock().wall_now());
    const std::string payload(bw::s3::unsigned_payload);
    const bw::s3::name_values headers{{"host", config.resolved_endpoint()->authority()}, {"x-amz-date", date}, {"x-amz-content-sha256", payload}};
    const bw::s3::name_values no_query;
    return "x-amz-date: " + date + "\r\nx-amz-content-sha256: " + payload + "\r\nauthorization: " +
           signer->authorization(config.credentials(), config.region(), date, method, path, no_query, headers, payload) + "\r\n";
  };
}

class raw : public contender {
 public:
  raw(const place& to, const cell& c, std::uint64_t object) : object_(object), body_(c.put ? c.length : 0, 'x') {
    for (std::size_t t = 0; t < c.threads; ++t) {
      clients_.push_back(std::make_unique<bench::raw_client>(to.at().host(), std::to_string(to.at().port()), to.base() + "range", c.in_flight / c.threads,
                                                             c.tls, to.base() + "put" + std::to_string(t) + "-",
                                                             to.signed_raw ? signatures(to.config) : bench::raw_client::more_headers()));
    }
  }
  figures run(const cell& c, double seconds) override {
    return figures(bench::on_threads(c.threads, [&](std::size_t t) {
      return c.put ? clients_[t]->put(body_.data(), body_.size(), seconds) : clients_[t]->get(object_, c.length, seconds);
    }));
  }

 private:
  std::uint64_t object_;
  std::vector<char> body_;
  std::vector<std::unique_ptr<bench::raw_client>> clients_;
};

/// bench/s3_peers.py. It is started once for a kind, a place and a number of threads.
class peer {
 public:
  peer(const std::string& python, const std::string& kind, const place& to, std::size_t threads)
      : child_({python, BENCH_SOURCE_DIR "/s3_peers.py", kind, to.url(), to.config.bucket(), to.config.prefix(), std::to_string(threads),
                to.at().tls() ? to.config.ca_file() : std::string()},
               {"AWS_ACCESS_KEY_ID=" + to.config.credentials().access_key(),
                "AWS_SECRET_ACCESS_KEY=" + to.config.credentials().secret_key().reveal()}) {
    const std::string hello = child_.read();
    present_ = hello.starts_with("ready");
    told_ = hello.substr(hello.find(' ') + 1);
  }
  bool present() const { return present_; }
  /// The version, or why it is not there.
  const std::string& told() const { return told_; }
  figures run(const cell& c, std::uint64_t object, double seconds) {
    const std::string answer = child_.ask(std::string(c.put ? "put " : "get ") + std::to_string(c.length) + " " + std::to_string(c.in_flight) + " " +
                                          std::to_string(seconds) + " " + std::to_string(object));
    std::istringstream in(answer);
    double bytes = 0, requests = 0, wall = 0, cpu = 0;
    figures f;
    if (!(in >> bytes >> requests >> wall >> cpu >> f.p50 >> f.p99)) throw std::runtime_error(answer);
    f.rate = bytes / wall / 1e9;
    f.requests = requests / wall;
    f.cpu = cpu / (bytes / 1e9);
    return f;
  }

 private:
  bench::line_child child_;
  bool present_ = false;
  std::string told_;
};

class peer_contender : public contender {
 public:
  peer_contender(peer& p, std::uint64_t object) : peer_(p), object_(object) {}
  figures run(const cell& c, double seconds) override { return peer_.run(c, object_, seconds); }

 private:
  peer& peer_;
  std::uint64_t object_;
};

figures medians(const std::vector<figures>& rounds) {
  const auto of = [&](double figures::* f) {
    std::vector<double> v;
    for (const figures& r : rounds) v.push_back(r.*f);
    return bench::median(v);
  };
  figures m;
  m.rate = of(&figures::rate), m.requests = of(&figures::requests), m.p50 = of(&figures::p50), m.p99 = of(&figures::p99), m.cpu = of(&figures::cpu);
  return m;
}

/// The object that is read must be there, with the pattern in it.
asio::awaitable<void> make_object(bw::s3_store store, std::uint64_t size) {
  std::string key("range");
  bw::result<std::optional<bw::object_info>> there = co_await store.head(key);
  if (!there) throw bw::error(there.error());
  if (*there && (*there)->size() == size) co_return;
  std::vector<std::uint64_t> words(static_cast<std::size_t>(size / 8));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = bench::pattern_at(i * 8);
  const bw::const_buffers body{std::as_bytes(std::span(words))};
  const bw::put_condition always;
  bw::result<bw::put_outcome> put = co_await store.put(key, body, always);
  if (!put) throw bw::error(put.error());
}

struct settings {
  double seconds = 1;
  std::size_t rounds = 3;
  std::string python;
  std::set<std::string> clients;
  std::uint64_t object = 0;
};

class program {
 public:
  program(settings s, bench::report& out) : s_(std::move(s)), out_(out) {}

  void measure(const cell& c, const place& to) {
    std::vector<std::pair<std::string, std::unique_ptr<contender>>> all;
    const auto wanted = [this](const char* name) { return s_.clients.empty() || s_.clients.contains(name); };
    // The children first: they are forked before this cell starts any thread.
    for (const std::string kind : peers) {
      if (!wanted(kind.c_str()) || (!c.put && kind == summed)) continue;
      peer& p = peer_of(kind, to, c.threads);
      if (p.present()) all.emplace_back(kind, std::make_unique<peer_contender>(p, s_.object));
    }
    if (wanted("raw")) all.emplace(all.begin(), "raw", std::make_unique<raw>(to, c, s_.object));
    if (wanted("batchweave")) all.emplace(all.begin(), "batchweave", std::make_unique<ours>(to, c, s_.object));
    std::map<std::string, std::vector<figures>> rounds;
    std::map<std::string, std::string> broken;
    for (std::size_t r = 0; r < s_.rounds + 1; ++r) {
      for (auto& [name, client] : all) {
        if (broken.contains(name)) continue;
        try {
          // Round 0 is not measured: connections, page faults, the server's caches.
          const figures f = client->run(c, r == 0 ? std::min(0.3, s_.seconds) : s_.seconds);
          if (r > 0) rounds[name].push_back(f);
        } catch (const std::exception& e) {
          if (name == "batchweave" || name == "raw") throw;
          broken[name] = e.what();
        }
      }
    }
    show(c, rounds, broken);
  }

 private:
  peer& peer_of(const std::string& kind, const place& to, std::size_t threads) {
    auto& p = peers_[kind + " " + to.url() + " " + std::to_string(threads)];
    if (!p) {
      p = std::make_unique<peer>(s_.python, kind, to, threads);
      if (told_.insert(kind).second) std::printf("%s: %s\n", kind.c_str(), p->present() ? p->told().c_str() : ("skipped: " + p->told()).c_str());
    }
    return *p;
  }

  void show(const cell& c, const std::map<std::string, std::vector<figures>>& rounds, const std::map<std::string, std::string>& broken) {
    std::map<std::string, figures> m;
    for (const auto& [name, r] : rounds) m[name] = medians(r);
    std::printf("%s\n", c.name().c_str());
    const figures limit = m.contains("raw") ? m["raw"] : figures();
    double best = bench::report::nan();
    for (const char* name : peers) {
      if (m.contains(name) && !(m[name].rate <= best)) best = m[name].rate;
    }
    for (const char* name : {"batchweave", "raw", peers[0], peers[1], peers[2]}) {
      if (broken.contains(name)) std::printf("  %-14s failed: %s\n", name, broken.at(name).c_str());
      if (!m.contains(name)) continue;
      const figures& f = m[name];
      std::printf("  %-14s %7.3f GB/s (%5.2f raw) %8.0f /s   p50 %8.2f  p99 %8.2f ms   CPU %6.3f s/GB (%5.2f raw) %7.0f us each\n", name, f.rate,
                  f.rate / limit.rate, f.requests, f.p50 * 1e3, f.p99 * 1e3, f.cpu, f.cpu / limit.cpu, f.cpu * f.rate / f.requests * 1e6);
      const std::string what = c.name() + ", " + name + ": ";
      out_.record(what + "throughput", f.rate, "GB/s", limit.rate);
      out_.record(what + "requests", f.requests, "1/s", limit.requests);
      out_.record(what + "latency p50", f.p50 * 1e3, "ms", limit.p50 * 1e3);
      out_.record(what + "latency p99", f.p99 * 1e3, "ms", limit.p99 * 1e3);
      out_.record(what + "client CPU", f.cpu, "s/GB", limit.cpu);
    }
    std::fflush(stdout);
    if (!m.contains("batchweave")) return;
    const figures& f = m["batchweave"];
    const bool large = c.length >= (std::size_t{1} << 20);
    const auto bar = [&](double value, double least, const char* what) {
      if (std::isnan(value)) return;
      char text[160];
      std::snprintf(text, sizeof text, "%s %.2f, bar %.2f", what, value, least);
      const bool at_most = std::string_view(what).starts_with("CPU");
      out_.expect(at_most ? value <= least : value >= least, text);
    };
    if (!c.put) {
      bar(f.rate / limit.rate, large ? 0.9 : 0.7, "throughput over raw");
      bar(f.cpu / limit.cpu, large ? 1.2 : 2, "CPU over raw");
      bar(f.rate / best, 1.5, "throughput over the best peer");
    } else if (c.length == (std::size_t{16} << 20)) {
      if (m.contains(summed)) bar(f.rate / m[summed].rate, 1.2, "throughput over object_store with a checksum");
      if (m.contains("obstore")) bar(f.rate / m["obstore"].rate, 1.2, "throughput over object_store without a checksum");
    }
  }

  settings s_;
  bench::report& out_;
  std::map<std::string, std::unique_ptr<peer>> peers_;
  std::set<std::string> told_;
};

bw::s3_config unsigned_server(const std::string& url) {
  bw::s3_config c;
  c.endpoint(url).bucket("bucket").region("us-east-1").credentials("bench", "bench-secret").signing(bw::payload_signing::crc32c);
  return c;
}

}  // namespace

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "s3_client [--json FILE] [--check] [--seconds S] [--rounds N] [--clients batchweave,raw,awscrt,obstore,obstore+sha256] [--python PROGRAM]\n"
                        "          [--operation get|put] [--transport http|https] [--threads N] [--length BYTES] [--in-flight N] [--object-mib N]\n"
                        "          [--endpoint URL | --store s3://bucket/prefix?endpoint=URL]\n"
                        "  --endpoint: a server without credentials that answers like bench/http_server: GET /bucket/range, PUT /bucket/put*\n"
                        "  --store: a real store with credentials from the environment; the object 'range' is made below the prefix\n"
                        "  --python: an interpreter that has awscrt and obstore (python3 -m pip install awscrt obstore); default python3");
  const std::string json = args.text("json");
  settings s;
  s.seconds = args.number("seconds", 1);
  s.rounds = args.count("rounds", 3);
  s.python = args.text("python", "python3");
  {
    std::istringstream names(args.text("clients"));
    for (std::string n; std::getline(names, n, ',');) s.clients.insert(n);
  }
  const std::string operation = args.text("operation"), transport = args.text("transport");
  const std::size_t only_threads = args.count("threads", 0), only_length = args.count("length", 0), only_in_flight = args.count("in-flight", 0);
  const std::string endpoint = args.text("endpoint"), store_url = args.text("store");
  const std::size_t object_mib = args.count("object-mib", 0);
  const bool check = args.flag("check");
  args.done();

  try {
    std::optional<bench::server_process> sink;
    std::optional<bench::nginx> server;
    std::map<std::pair<bool, bool>, place> places;  // (put, tls)
    std::string told;
    const bool here = endpoint.empty() && store_url.empty();
    const bool with_nginx = here && bench::nginx::installed();
    s.object = (object_mib ? object_mib : with_nginx ? 1024 : 256) * (std::uint64_t{1} << 20);
    if (here) {
      sink.emplace(with_nginx ? 1u << 20 : s.object);
      if (with_nginx) server.emplace(s.object, sink->port());
      places[{true, false}].config = unsigned_server(sink->url());
      places[{false, false}].config = unsigned_server(server ? server->url() : sink->url());
      if (server) {
        places[{false, true}].config = places[{true, true}].config = unsigned_server(server->tls_url()).ca_file(server->ca_file());
      }
      told = server ? "nginx and a sink for plain uploads" : "bench/range_server (nginx is not installed: no TLS)";
    } else {
      place p;
      if (store_url.empty()) {
        p.config = unsigned_server(endpoint);
      } else {
        const bw::result<bw::s3_config> config = bw::s3_config::from_url(store_url);
        if (!config) throw bw::error(config.error());
        p.config = *config;
        p.config.signing(bw::payload_signing::crc32c);
        if (p.config.endpoint().empty()) throw std::runtime_error("--store needs endpoint=...");
        p.signed_raw = true;
        asio::io_context context(1);
        bw::s3_store store(context.get_executor(), p.config);
        bench::run(context, make_object(store, s.object));
      }
      places[{false, p.at().tls()}] = places[{true, p.at().tls()}] = p;
      told = p.url();
    }
    bench::report report("S3 clients, " + told + ", object of " + bench::size_text(s.object), json);
    program run(s, report);
    for (const auto& [kind, to] : places) {
      const auto [put, tls] = kind;
      if ((!operation.empty() && (operation == "put") != put) || (!transport.empty() && (transport == "https") != tls)) continue;
      for (const std::size_t threads : {std::size_t{1}, std::size_t{2}}) {
        if (only_threads && threads != only_threads) continue;
        std::vector<std::pair<std::size_t, std::size_t>> sizes;
        constexpr std::size_t kib = 1024, mib = 1024 * kib;
        if (put) sizes = {{16 * mib, 8}, {256 * mib, 2}};
        else sizes = {{64 * kib, 8}, {64 * kib, 32}, {mib, 8}, {mib, 32}, {16 * mib, 8}, {16 * mib, 32}};
        for (const auto& [length, in_flight] : sizes) {
          if ((only_length && length != only_length) || (only_in_flight && in_flight != only_in_flight)) continue;
          run.measure(cell{put, length, in_flight, threads, tls}, to);
        }
      }
    }
    report.write();
    if (check && !report.all_kept()) return 3;
  } catch (const std::exception& e) {
    std::cerr << "s3_client: " << e.what() << '\n';
    return 1;
  }
}
