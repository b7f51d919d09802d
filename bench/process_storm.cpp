// Many producer processes on one real store, killed and stopped at random; afterwards the stream is read and I1, I2, I3 and I9 are checked.
#include "child.hpp"
#include "latency_server.hpp"
#include "support.hpp"

#include <batchweave/batchweave.hpp>
#include <batchweave/commit/cooperative.hpp>

#include <filesystem>
#include <memory>
#include <optional>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

constexpr const char* usage =
    "usage: process_storm [--store URL] [--latency-ms MS] [--producers N] [--seconds S] [--rate TGB/S] [--policy dac|cooperative|eager]\n"
    "                     [--seed N] [--json FILE]\n"
    "Starts N producer processes (64) that publish at the given rate each (1), kills one with SIGKILL about every second and restarts it, and stops\n"
    "one with SIGSTOP for 5 to 60 s about every two seconds. After S seconds (60) all close; then every step is read and checked. URL: a fresh prefix of a real\n"
    "store; default: a scripted S3 server in a process of its own whose every answer takes MS milliseconds (30). Exit status 1 on a violation.";

constexpr std::uint32_t slices = 4;

// What slice k of batch seq of a producer must be.
std::string slice_text(const std::string& producer, std::uint64_t seq, std::uint32_t k) {
  const std::string one = producer + " " + std::to_string(seq) + " " + std::to_string(k) + "\n";
  std::string all;
  for (std::uint64_t i = 0; i < 8 + seq % 5; ++i) all += one;
  return all;
}

bw::any_store open(asio::any_io_executor executor, const std::string& url) { return bw::open_store(std::move(executor), url).value(); }

// ---- a producer process -----------------------------------------------------------------------------------------------

struct producer_job {
  std::string id, url, policy, diary;
  double rate = 1, until = 0;
  std::uint64_t seed = 0;
};

// What survives a SIGKILL: lines in a file.
void note(const std::string& diary, const std::string& line) {
  const int fd = ::open(diary.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const std::string text = line + "\n";
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw std::runtime_error("cannot write " + diary);
  ::close(fd);
}

template <class Policy>
asio::awaitable<void> produce(producer_job job, Policy policy) {
  bw::any_store store = open(co_await asio::this_coro::executor, job.url);
  bw::producer_options options(job.id);
  options.seed(job.seed).uploads_in_flight(4).give_up_after(std::chrono::minutes(5));
  auto producer = co_await bw::open_producer(store, options, policy);
  std::uint64_t next = producer.state().empty() ? 0 : std::stoull(std::string(producer.state()));
  if (next != producer.next_seq()) note(job.diary, "violation: state " + std::to_string(next) + " with next seq " + std::to_string(producer.next_seq()));
  bw::any_clock clock;
  bw::random64 random(job.seed);
  while (bench::now_seconds() < job.until) {
    std::vector<bw::byte_buffer> parts;
    for (std::uint32_t k = 0; k < slices; ++k) parts.push_back(bw::byte_buffer::copy_of(bw::as_bytes(slice_text(job.id, next, k))));
    bw::global_batch batch(std::move(parts));
    co_await producer.publish(std::move(batch), std::to_string(next + 1));
    ++next;
    note(job.diary, "committed " + std::to_string(producer.committed_seq()));
    co_await clock.wait_for(bw::duration(static_cast<std::int64_t>(1e9 / job.rate * random.uniform(0.5, 1.5))));
  }
  co_await producer.close();
  const bw::producer_stats stats = producer.stats();
  note(job.diary, "committed " + std::to_string(producer.committed_seq()));
  note(job.diary, "closed " + std::to_string(stats.commits()) + " " + std::to_string(stats.attempts()) + " " + std::to_string(stats.conflicts()));
}

int producer_main(const producer_job& job) {
  asio::io_context context;
  std::exception_ptr thrown;
  const auto done = [&](std::exception_ptr e) {
    thrown = e;
    context.stop();
  };
  if (job.policy == "cooperative") asio::co_spawn(context, produce(job, bw::commit::cooperative()), done);
  else if (job.policy == "eager") asio::co_spawn(context, produce(job, bw::commit::eager()), done);
  else asio::co_spawn(context, produce(job, bw::commit::dac()), done);
  context.run();
  if (!thrown) return 0;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    note(job.diary, std::string("failed: ") + e.what());
  }
  return 1;
}

// ---- the check --------------------------------------------------------------------------------------------------------

struct verdict {
  std::uint64_t steps = 0, violations = 0;
  std::map<std::string, std::uint64_t> next;  // per producer
};

void violation(verdict& v, const std::string& what) {
  if (++v.violations <= 20) std::cout << "violation: " << what << '\n';
}

asio::awaitable<void> read_stream(bw::any_store store, verdict& v) {
  bw::consumer_options options("check");
  options.start_at(0).prefetch(32).max_wait(std::chrono::minutes(2));
  auto consumer = co_await bw::open_consumer(store, options);
  while (std::optional<bw::slice> s = co_await consumer.next()) {
    if (s->step() != v.steps) violation(v, "step " + std::to_string(s->step()) + " where " + std::to_string(v.steps) + " is due");
    ++v.steps;
    const std::uint64_t seq = v.next[s->producer()]++;
    for (std::uint32_t k = 0; k < slices; ++k) {
      if (bw::as_text(s->part(k)) != slice_text(s->producer(), seq, k)) {
        violation(v, "step " + std::to_string(s->step()) + " slice " + std::to_string(k) + " is not that of batch " + std::to_string(seq) + " of " +
                         s->producer());
        break;
      }
    }
  }
}

asio::awaitable<void> create(bw::any_store store, std::uint64_t producers) {
  bw::stream_options options;
  options.slices(slices).producers(producers);
  co_await bw::create_stream(store, options);
}

void run(asio::io_context& context, asio::awaitable<void> work) {
  std::exception_ptr thrown;
  asio::co_spawn(context, std::move(work), [&](std::exception_ptr e) {
    thrown = e;
    context.stop();
  });
  context.restart();
  context.run();
  if (thrown) std::rethrow_exception(thrown);
}

struct process {
  std::string id, diary;
  std::unique_ptr<bench::child_process> child;
  double stopped_until = 0;
  unsigned lives = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  bench::arguments args(argc, argv, usage);
  const std::string as = args.text("as");
  const double latency = args.number("latency-ms", 30);
  if (as == "server") {
    args.done();
    return bench::serve_with_latency(latency);
  }
  producer_job job;
  job.id = args.text("id");
  job.url = args.text("store");
  job.policy = args.text("policy", "dac");
  job.rate = args.number("rate", 1);
  job.seed = args.count("seed", 1);
  job.diary = args.text("diary");
  job.until = args.number("until", 0);
  const std::size_t producers = args.count("producers", 64);
  const double seconds = args.number("seconds", 60);
  const std::string json = args.text("json");
  args.done();
  if (as == "producer") return producer_main(job);

  std::optional<bench::latency_server> server;
  std::string url = job.url;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  if (url.empty()) url = server.emplace(latency).url();
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("batchweave-storm-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  asio::io_context context;
  run(context, create(open(context.get_executor(), url), producers));

  std::cout << producers << " producers, policy " << job.policy << ", " << seconds << " s, seed " << job.seed << ", store " << (job.url.empty() ? "scripted" : url)
            << std::endl;
  bw::random64 random(job.seed);
  const double begun = bench::now_seconds();
  const double until = begun + seconds;
  std::vector<process> all(producers);
  const auto start = [&](process& p) {
    ++p.lives;
    p.child.reset();
    p.child = std::make_unique<bench::child_process>(std::vector<std::string>{
        self, "--as", "producer", "--id", p.id, "--store", url, "--policy", job.policy, "--rate", std::to_string(job.rate), "--seed",
        std::to_string(random() >> 12), "--diary", p.diary, "--until", std::to_string(until)});
  };
  for (std::size_t i = 0; i < producers; ++i) {
    all[i].id = "p" + std::to_string(i);
    all[i].diary = (folder / all[i].id).string();
    start(all[i]);
  }
  std::uint64_t kills = 0, stops = 0;
  const auto closed = [](const process& p) {
    std::ifstream in(p.diary);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("closed ")) return true;
    }
    return false;
  };
  double next_kill = begun + 1, next_stop = begun + 2, give_up = until + 300, said = begun;
  for (;;) {
    ::usleep(50000);
    const double now = bench::now_seconds();
    std::size_t open_ones = 0;
    for (process& p : all) {
      if (p.stopped_until > 0 && (now >= p.stopped_until || now >= until)) {
        p.child->signal(SIGCONT);
        p.stopped_until = 0;
      }
      if (p.child->running()) ++open_ones;
      else if (!closed(p)) start(p), ++open_ones;  // killed, or failed: the diary says so
    }
    if (open_ones == 0) break;
    if (now > give_up) throw std::runtime_error("the producers did not close within 300 s");
    if (now < until && now >= next_kill) {
      process& p = all[random() % producers];
      if (p.stopped_until == 0) p.child->signal(SIGKILL), ++kills;
      next_kill = now + random.uniform(0.5, 1.5);
    }
    if (now < until && now >= next_stop) {
      process& p = all[random() % producers];
      if (p.stopped_until == 0 && p.child->running()) {
        p.child->signal(SIGSTOP);
        p.stopped_until = now + random.uniform(5, 60);
        ++stops;
      }
      next_stop = now + random.uniform(1, 3);
    }
    if (now - said > 30) {
      std::cout << static_cast<int>(now - begun) << " s: " << kills << " kills, " << stops << " stops, " << open_ones << " processes" << std::endl;
      said = now;
    }
  }
  const double ran = bench::now_seconds() - begun;

  verdict v;
  run(context, read_stream(open(context.get_executor(), url), v));
  std::uint64_t failures = 0, commits = 0, attempts = 0, conflicts = 0;
  for (const process& p : all) {
    std::ifstream in(p.diary);
    std::uint64_t acknowledged = 0;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("committed ")) acknowledged = std::max<std::uint64_t>(acknowledged, std::stoull(line.substr(10)));
      if (line.starts_with("violation")) violation(v, p.id + ": " + line);
      if (line.starts_with("failed") && ++failures <= 20) std::cout << p.id << ' ' << line << '\n';
      if (line.starts_with("closed ")) {
        std::istringstream numbers(line.substr(7));
        std::uint64_t c = 0, a = 0, l = 0;
        numbers >> c >> a >> l;
        commits += c, attempts += a, conflicts += l;
      }
    }
    if (v.next[p.id] < acknowledged) {
      violation(v, p.id + " was told that " + std::to_string(acknowledged) + " batches are committed, the stream has " + std::to_string(v.next[p.id]));
    }
  }
  std::filesystem::remove_all(folder);

  bench::report table("process_storm: " + std::to_string(producers) + " processes", json);
  table.add("steps", static_cast<double>(v.steps), "steps");
  table.add("rate", static_cast<double>(v.steps) / ran, "TGB/s");
  table.add("kills", static_cast<double>(kills), "SIGKILL");
  table.add("stops", static_cast<double>(stops), "SIGSTOP");
  table.add("incarnations that failed", static_cast<double>(failures), "processes");
  table.add("commits of the last incarnations", static_cast<double>(commits), "versions");
  table.add("attempts of the last incarnations", static_cast<double>(attempts), "PUTs");
  table.add("lost by the last incarnations", static_cast<double>(conflicts), "PUTs");
  table.add("violations", static_cast<double>(v.violations), "violations");
  table.write();
  return v.violations == 0 ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << "process_storm: " << e.what() << '\n';
  return 2;
}
