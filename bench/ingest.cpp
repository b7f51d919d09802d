// Upload of global batches through a producer against the raw limit of the same medium, and peak memory against the budget.
//
// Over HTTP the raw side is the epoll loop that PUTs the same number of bytes from one buffer, nothing hashed and nothing signed, to the
// same server in another process. In a folder it is write, fsync, rename, fsync of the folder. Both have the same number of uploads in flight.
#include "raw_client.hpp"
#include "run.hpp"
#include "support.hpp"

#include <batchweave/aio/memory_budget.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/any_store.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/store/open.hpp>
#include <batchweave/store/s3.hpp>
#include <batchweave/stream.hpp>

#include <filesystem>
#include <memory_resource>
#include <random>

namespace {

namespace bw = bench::bw;
namespace asio = bench::asio;

constexpr std::uint32_t slices = 8;

/// Hands freed blocks out again, as a training job's pinned buffers are: otherwise page faults are what is measured.
class recycled final : public std::pmr::memory_resource {
 public:
  ~recycled() override {
    for (auto& [size, list] : free_) {
      for (void* p : list) std::pmr::new_delete_resource()->deallocate(p, size, bw::byte_buffer::alignment);
    }
  }

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    auto& list = free_[size];
    if (list.empty()) {
      void* p = std::pmr::new_delete_resource()->allocate(size, alignment);
      std::memset(p, 7, size);
      return p;
    }
    void* p = list.back();
    list.pop_back();
    return p;
  }
  void do_deallocate(void* p, std::size_t size, std::size_t) override { free_[size].push_back(p); }
  bool do_is_equal(const std::pmr::memory_resource& o) const noexcept override { return this == &o; }
  std::map<std::size_t, std::vector<void*>> free_;
};

/// Maps every block afresh and gives it back to the system, so that resident memory is what is in use, and counts.
class mapped final : public std::pmr::memory_resource {
 public:
  std::size_t peak() const { return peak_; }

 private:
  void* do_allocate(std::size_t size, std::size_t) override {
    void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    live_ += size;
    peak_ = std::max(peak_, live_);
    return p;
  }
  void do_deallocate(void* p, std::size_t size, std::size_t) override {
    ::munmap(p, size);
    live_ -= size;
  }
  bool do_is_equal(const std::pmr::memory_resource& o) const noexcept override { return this == &o; }
  std::size_t live_ = 0, peak_ = 0;
};

struct plan {
  std::size_t batch_bytes = 0;
  std::size_t in_flight = 1;
  double seconds = 1;
  std::size_t budget = std::size_t{256} << 20;
  bool touch = false;
  std::pmr::memory_resource* memory = nullptr;
};

asio::awaitable<void> ingest(bw::any_store store, const plan* p, bench::load* out) {
  bw::stream_options so;
  so.slices(slices);
  co_await bw::create_stream(store, so);
  bw::producer_options po("ingest");
  const bw::memory_budget budget(p->budget);
  po.uploads_in_flight(p->in_flight).budget(budget);
  auto producer = co_await bw::open_producer(store, po);
  const bench::stopwatch watch;
  std::uint64_t n = 0;
  while (watch.wall() < p->seconds) {
    std::vector<bw::byte_buffer> parts;
    for (std::uint32_t i = 0; i < slices; ++i) {
      parts.emplace_back(p->batch_bytes / slices, p->memory);
      if (p->touch) std::memset(parts.back().data(), 1, parts.back().size());
      std::memcpy(parts.back().data(), &n, sizeof n);
    }
    bw::global_batch batch(std::move(parts));
    std::string state = std::to_string(n++);
    const double started = bench::now_seconds();
    (void)co_await producer.publish(std::move(batch), std::move(state));
    out->latencies.push_back(bench::now_seconds() - started);
  }
  co_await producer.flush();
  out->wall = watch.wall();
  out->cpu = watch.cpu();
  out->requests = n;
  out->bytes = n * p->batch_bytes;
  co_await producer.detach();
}

bench::load drive(asio::io_context& context, bw::any_store store, const plan& p) {
  bench::load result;
  bench::run(context, ingest(std::move(store), &p, &result));
  return result;
}

bench::load raw_folder(const std::string& folder, std::size_t bytes, double seconds) {
  std::filesystem::create_directories(folder);
  const std::vector<char> body(bytes, 'x');
  const int dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  bench::load r;
  const bench::stopwatch watch;
  while (watch.wall() < seconds) {
    const std::string name = folder + "/" + std::to_string(r.requests);
    const int fd = ::open((name + ".tmp").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t n = ::write(fd, body.data() + at, bytes - at);
      if (n <= 0) throw std::system_error(errno, std::generic_category(), name);
      at += static_cast<std::size_t>(n);
    }
    if (::fsync(fd) != 0 || ::close(fd) != 0 || ::rename((name + ".tmp").c_str(), name.c_str()) != 0 || ::fsync(dir) != 0) {
      throw std::system_error(errno, std::generic_category(), name);
    }
    ++r.requests;
    r.bytes += bytes;
  }
  ::close(dir);
  r.wall = watch.wall();
  r.cpu = watch.cpu();
  std::filesystem::remove_all(folder);
  return r;
}

double median_rate(const std::vector<bench::load>& rounds) {
  std::vector<double> v;
  for (const auto& r : rounds) v.push_back(r.rate());
  return bench::median(v);
}
double median_cpu(const std::vector<bench::load>& rounds) {
  std::vector<double> v;
  for (const auto& r : rounds) v.push_back(r.cpu_per_gb());
  return bench::median(v);
}

void rows(bench::report& out, const std::string& what, const std::vector<bench::load>& ours, const std::vector<bench::load>& raw) {
  out.add(what + "throughput", median_rate(ours), "GB/s", raw.empty() ? bench::report::nan() : median_rate(raw));
  out.add(what + "client CPU", median_cpu(ours), "s/GB", raw.empty() ? bench::report::nan() : median_cpu(raw));
  out.add(what + "publish p50", bench::percentile(ours.back().latencies, 0.5) * 1e3, "ms");
  out.add(what + "publish p99", bench::percentile(ours.back().latencies, 0.99) * 1e3, "ms");
}

}  // namespace

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "ingest [--json FILE] [--check] [--seconds S] [--rounds N] [--batch-mib N] [--folder DIR | --no-folder] [--store URL]\n"
                        "  --store: one more store, e.g. 's3://bench/ingest?endpoint=http://127.0.0.1:8000' (keys from the environment)");
  const std::string json = args.text("json");
  const double seconds = args.number("seconds", 2);
  const std::size_t rounds = args.count("rounds", 3);
  const std::size_t batch = args.count("batch-mib", 16) << 20;
  const bool no_folder = args.flag("no-folder");
  const std::string folder =
      args.text("folder", (std::filesystem::temp_directory_path() / ("ingest." + std::to_string(::getpid()))).string());
  const std::string url = args.text("store");
  const bool check_promises = args.flag("check");
  args.done();

  try {
    bench::server_process server(std::uint64_t{16} << 20);
    asio::io_context context(1);
    recycled memory;
    plan p;
    p.batch_bytes = batch;
    p.seconds = seconds;
    p.memory = &memory;
    std::size_t streams = 0;
    const auto s3 = [&](bw::payload_signing how) {
      bw::s3_config config;
      config.endpoint(server.url()).bucket("bucket").region("us-east-1").credentials("bench", "bench-secret").signing(how);
      config.prefix("stream" + std::to_string(streams++));
      return bw::any_store(bw::s3_store(context.get_executor(), config));
    };
    bench::report out("upload of global batches of " + bench::size_text(batch) + " in " + std::to_string(slices) + " slices", json);

    for (const std::size_t in_flight : {std::size_t{1}, std::size_t{4}}) {
      p.in_flight = in_flight;
      bench::raw_client raw("127.0.0.1", std::to_string(server.port()), "/bucket/raw", in_flight);
      const std::vector<char> body(batch, 'x');
      std::vector<bench::load> hashed, summed, limit;
      for (std::size_t r = 0; r < rounds; ++r) {
        hashed.push_back(drive(context, s3(bw::payload_signing::signed_hash), p));
        summed.push_back(drive(context, s3(bw::payload_signing::crc32c), p));
        limit.push_back(raw.put(body.data(), body.size(), seconds));
      }
      const std::string n = std::to_string(in_flight) + " in flight, ";
      rows(out, "http, " + n + "CRC32C: ", summed, limit);
      rows(out, "http, " + n + "signed SHA-256: ", hashed, limit);
    }

    p.in_flight = 1;
    if (!no_folder) {
      std::vector<bench::load> ours, limit;
      for (std::size_t r = 0; r < rounds; ++r) {
        const std::string root = folder + "/stream" + std::to_string(r);
        std::filesystem::create_directories(root);
        ours.push_back(drive(context, bw::any_store(bw::file_store(root)), p));
        std::filesystem::remove_all(root);
        limit.push_back(raw_folder(folder + "/raw", batch, seconds));
      }
      std::filesystem::remove_all(folder);
      rows(out, "folder: ", ours, limit);
    }
    if (!url.empty()) {
      std::vector<bench::load> ours;
      for (std::size_t r = 0; r < rounds; ++r) {
        std::string at = url;
        at.insert(std::min(at.find('?'), at.size()), "/ingest" + std::to_string(std::random_device{}()));
        ours.push_back(drive(context, bw::open_store(context.get_executor(), at).value(), p));
      }
      rows(out, url.substr(0, url.find('?')) + ": ", ours, {});
    }

    // As many uploads as the budget lets through; every batch in memory of its own. The caller holds one batch more than the budget.
    p.in_flight = 1000;
    p.touch = true;
    mapped fresh;
    p.memory = &fresh;
    p.budget = 4 * batch + 4096;
    const std::uint64_t before = bench::resident_memory();
    bench::reset_peak_memory();
    drive(context, s3(bw::payload_signing::crc32c), p);
    const auto grown = static_cast<double>(bench::peak_memory() - std::min(before, bench::peak_memory()));
    const auto budget = static_cast<double>(p.budget);
    out.add("peak bytes of batches, budget of 4 batches", static_cast<double>(fresh.peak()) / 1e6, "MB", budget / 1e6);
    out.add("peak resident memory above the start", grown / 1e6, "MB", budget / 1e6);
    out.expect(grown <= 1.1 * budget + static_cast<double>(batch), "at most 1.1 budgets and the one batch that the caller waits with");
    out.write();
    if (check_promises && !out.all_kept()) return 3;
  } catch (const std::exception& e) {
    std::cerr << "ingest: " << e.what() << '\n';
    return 1;
  }
}
