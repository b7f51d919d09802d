// Minutes of a whole run in real processes over a real store, with kill -9 at random, then a check of what every rank was given.
// Producers, a training job whose world size changes with every life, and a reclaimer are processes of this program.
#include "support.hpp"

#include <batchweave/batchweave.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

constexpr const char* usage =
    "usage: soak [--url URL] [--minutes M] [--producers N] [--batch-kib K] [--rate STEPS_PER_SECOND] [--every STEPS] [--kill-every SECONDS]\n"
    "            [--seed S] [--logs FOLDER]\n"
    "exit status: 0 all held; 1 an invariant broke; 2 usage; 3 bytes in the bucket above 1.1 x the window";
constexpr std::uint32_t slices = 4;

struct settings {
  std::string url, logs, role, name;
  std::size_t producers = 3, batch_kib = 64, every = 50;
  double minutes = 1, rate = 40, kill_every = 2;
  std::uint64_t seed = 1, until = 0, start = 0;
  std::uint32_t rank = 0, world = 1, life = 0;
};

std::uint64_t unix_seconds() { return static_cast<std::uint64_t>(::time(nullptr)); }

void append(const std::string& file, const std::string& line) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) throw std::runtime_error("cannot write " + file);
  const std::string text = line + "\n";
  const ssize_t n = ::write(fd, text.data(), text.size());  // one write: whole or nothing when this process is killed
  ::close(fd);
  if (n != static_cast<ssize_t>(text.size())) throw std::runtime_error("cannot write " + file);
}

bw::byte_buffer slice_of(const settings& s, const std::string& producer, std::uint64_t seq, std::uint32_t k) {
  bw::byte_buffer b(std::max<std::size_t>(256, s.batch_kib * 1024 / slices));
  std::memset(b.data(), static_cast<int>(seq + k), b.size());
  const std::string head = producer + " " + std::to_string(seq) + " " + std::to_string(k) + "\n";
  std::memcpy(b.data(), head.data(), head.size());
  return b;
}

// "producer seq" of a slice whose every byte is right; throws when one is not.
std::string identify(const settings& s, bw::const_bytes bytes, std::uint32_t k) {
  const std::string_view text = bw::as_text(bytes);
  const std::string head(text.substr(0, text.find('\n')));
  std::istringstream in(head);
  std::string producer;
  std::uint64_t seq = 0;
  std::uint32_t which = 0;
  in >> producer >> seq >> which;
  const bw::byte_buffer wanted = slice_of(s, producer, seq, k);
  if (!in || which != k || wanted.size() != bytes.size() || std::memcmp(wanted.data(), bytes.data(), bytes.size()) != 0) {
    throw std::runtime_error("slice " + std::to_string(k) + " holds wrong bytes: '" + head + "'");
  }
  return producer + " " + std::to_string(seq);
}

// ---- the processes -----------------------------------------------------------------------------------------------

asio::awaitable<void> produce(bw::any_store store, settings s) {
  bw::producer_options o(s.name);
  o.max_visibility_delay(std::chrono::seconds(1)).max_lead_steps(20 * s.every).uploads_in_flight(2);
  auto opened = co_await bw::as_result(bw::open_producer(store, o));
  if (!opened && opened.error().code() == bw::errc::stream_closed) co_return;  // killed after its close was committed
  auto producer = std::move(opened.value());
  std::uint64_t seq = producer.next_seq();
  const std::string state(producer.state());
  if (state != (seq == 0 ? std::string() : "after " + std::to_string(seq - 1))) {
    throw std::runtime_error("I3: producer " + s.name + " continues at " + std::to_string(seq) + " with the state '" + state + "'");
  }
  bw::any_clock clock;
  const bw::duration pause(static_cast<bw::duration::rep>(1e9 * static_cast<double>(s.producers) / s.rate));
  for (bw::time_point due = clock.now(); unix_seconds() < s.until; due = std::max(due + pause, clock.now())) {
    std::vector<bw::byte_buffer> parts;
    for (std::uint32_t k = 0; k < slices; ++k) parts.push_back(slice_of(s, s.name, seq, k));
    bw::global_batch batch(std::move(parts));
    co_await producer.publish(std::move(batch), "after " + std::to_string(seq));
    ++seq;
    co_await clock.wait_until(due + pause);
  }
  co_await producer.close();
}

asio::awaitable<void> train(bw::any_store store, settings s) {
  bw::checkpoint_options marking("run");
  marking.world_size(s.world).keep(2);
  auto checkpoints = co_await bw::open_checkpoints(store, marking);
  bw::consumer_options o("run");
  o.rank(s.rank).world_size(s.world).start(bw::cursor(checkpoints.stream().id, s.start)).max_wait(std::chrono::minutes(2));
  auto consumer = co_await bw::open_consumer(store, o);
  const std::string log = s.logs + "/life-" + std::to_string(s.life) + "-" + std::to_string(s.rank) + ".log";
  for (;;) {
    const std::optional<bw::slice> got = co_await consumer.next();
    if (!got) break;
    std::string whose;
    for (std::uint32_t i = 0; i < got->parts(); ++i) {
      const std::string part = identify(s, got->part(i), s.rank * (slices / s.world) + i);
      if (!whose.empty() && whose != part) throw std::runtime_error("I1: a step holds parts of " + whose + " and of " + part);
      whose = part;
    }
    append(log, std::to_string(got->step()) + " " + whose);
    const std::uint64_t next = got->step() + 1;
    if (next % s.every == 0) co_await checkpoints.mark("step-" + std::to_string(next), consumer.cursor(), s.rank);
  }
  append(log, "end " + std::to_string(consumer.cursor().next_step()));
}

asio::awaitable<std::uint64_t> bytes_in(bw::any_store store) {
  std::uint64_t sum = 0;
  std::string after;
  for (bool more = true; more;) {
    const std::string everything;
    const bw::result<bw::list_page> page = co_await store.list(everything, after, 1000);
    if (!page) throw bw::error(page.error());
    for (const auto& object : page->objects()) sum += object.size();
    more = page->more() && !page->objects().empty();
    if (more) after = page->objects().back().key();
  }
  co_return sum;
}

asio::awaitable<void> reclaim_for_ever(bw::any_store store, settings s) {
  bw::any_clock clock;
  const std::uint64_t batch = s.batch_kib * 1024 + 512;
  while (unix_seconds() < s.until) {
    const bw::reclaim_options o;
    const bw::reclaim_report r = co_await bw::reclaim(store, o);
    const std::uint64_t bytes = co_await bytes_in(store);
    const bw::reclaim_options looking = bw::reclaim_options().dry_run(true);
    const bw::reclaim_report after = co_await bw::reclaim(store, looking);  // what came while the bytes were counted is in flight
    const std::uint64_t window = (after.next_step - r.trim_step) * batch;
    const std::uint64_t in_flight = s.producers * 4 * batch;
    append(s.logs + "/reclaim.log", std::to_string(r.trim_step) + " " + std::to_string(after.next_step) + " " + std::to_string(bytes) + " " +
                                        std::to_string(window) + " " + std::to_string(in_flight) + " " + std::to_string(r.batches.keys) + " " +
                                        std::to_string(r.orphans.keys) + " " + std::to_string(r.versions.keys) + " " +
                                        std::to_string(r.failed_keys));
    co_await clock.wait_for(std::chrono::milliseconds(500));
  }
}

asio::awaitable<void> set_up(bw::any_store store, std::size_t producers) {
  bw::stream_options o;
  o.slices(slices).producers(producers);
  co_await bw::create_stream(store, o);
}

// What a job's coordinator does before its ranks start.
asio::awaitable<void> restart(bw::any_store store, std::uint32_t world, std::uint64_t& step) {
  bw::checkpoint_options marking("run");
  marking.world_size(world).keep(2);
  auto checkpoints = co_await bw::open_checkpoints(store, marking);
  const std::optional<bw::retained_checkpoint> from = co_await checkpoints.resume();
  step = from ? from->step() : 0;
}

template <class Make>
void run(const std::string& url, Make make) {
  asio::io_context io;
  bw::any_store store = bw::open_store(io.get_executor(), url).value();
  std::exception_ptr thrown;
  bool over = false;
  asio::co_spawn(io, make(store), [&](std::exception_ptr e) {
    thrown = e;
    over = true;
  });
  while (!over) io.run_one();
  if (thrown) std::rethrow_exception(thrown);
}

int child(const settings& s) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    if (s.role == "producer") run(s.url, [&](bw::any_store store) { return produce(store, s); });
    if (s.role == "rank") run(s.url, [&](bw::any_store store) { return train(store, s); });
    if (s.role == "reclaim") run(s.url, [&](bw::any_store store) { return reclaim_for_ever(store, s); });
  } catch (const bw::error& e) {
    append(s.logs + "/errors.log", s.role + " " + s.name + std::to_string(s.rank) + ": " + e.what());
    return e.failure().code() == bw::errc::fenced ? 4 : 1;  // a killed incarnation's successor may be quicker than its last request
  } catch (const std::exception& e) {
    append(s.logs + "/errors.log", s.role + " " + s.name + std::to_string(s.rank) + ": " + e.what());
    return 1;
  }
  return 0;
}

// ---- the parent --------------------------------------------------------------------------------------------------

class process {
 public:
  process() = default;
  void start(const settings& s, std::vector<std::string> more) {
    std::vector<std::string> command{"soak", "--url", s.url, "--logs", s.logs, "--producers", std::to_string(s.producers), "--batch-kib",
                                     std::to_string(s.batch_kib), "--rate", std::to_string(s.rate), "--every", std::to_string(s.every),
                                     "--until", std::to_string(s.until)};
    command.insert(command.end(), more.begin(), more.end());
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    std::vector<char*> arguments;
    for (std::string& a : command) arguments.push_back(a.data());
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
  bool running() {
    int status = 0;
    if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return pid_ > 0;
  }
  int code() const { return code_; }
  void kill() {
    if (!running()) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
    code_ = -1;
  }

 private:
  pid_t pid_ = 0;
  int code_ = 0;
};

class soak {
 public:
  explicit soak(settings s) : s_(std::move(s)), random_(s_.seed) {}

  int go() {
    run(s_.url, [&](bw::any_store store) { return set_up(store, s_.producers); });
    s_.until = unix_seconds() + static_cast<std::uint64_t>(s_.minutes * 60);
    producers_.resize(s_.producers);
    for (std::size_t i = 0; i < s_.producers; ++i) start_producer(i);
    start_reclaim();
    start_job();
    double next_kill = bench_now() + s_.kill_every;
    const double give_up = bench_now() + s_.minutes * 60 + 300;
    while (!over()) {
      ::usleep(20000);
      if (bench_now() > give_up) throw std::runtime_error("the run does not come to an end");
      revive();
      if (unix_seconds() < s_.until && bench_now() >= next_kill) {
        kill_somebody();
        next_kill = bench_now() + s_.kill_every * (0.5 + random_.uniform());
      }
    }
    reclaim_.kill();
    return verify();
  }

 private:
  static double bench_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void start_producer(std::size_t i) { producers_[i].start(s_, {"--role", "producer", "--name", "p" + std::to_string(i)}); }
  void start_reclaim() { reclaim_.start(s_, {"--role", "reclaim"}); }
  void start_job() {
    constexpr std::array<std::uint32_t, 3> worlds{1, 2, 4};
    const std::uint32_t world = worlds[random_() % worlds.size()];
    std::uint64_t step = 0;
    run(s_.url, [&](bw::any_store store) { return restart(store, world, step); });
    ++life_;
    ranks_.clear();
    ranks_.resize(world);
    for (std::uint32_t r = 0; r < world; ++r) {
      ranks_[r].start(s_, {"--role", "rank", "--rank", std::to_string(r), "--world", std::to_string(world), "--life", std::to_string(life_),
                           "--start", std::to_string(step)});
    }
  }

  bool over() {
    bool ended = true;
    for (process& p : producers_) ended = ended && !p.running() && p.code() == 0;
    for (process& r : ranks_) ended = ended && !r.running() && r.code() == 0;
    return ended;
  }

  void revive() {
    for (std::size_t i = 0; i < producers_.size(); ++i) {
      if (producers_[i].running() || producers_[i].code() == 0) continue;
      if (producers_[i].code() == 1) throw std::runtime_error("producer " + std::to_string(i) + " failed, see errors.log");
      start_producer(i);
    }
    bool lost = false;
    for (process& r : ranks_) {
      lost = (!r.running() && r.code() != 0) || lost;
      if (!r.running() && r.code() == 1) throw std::runtime_error("a rank failed, see errors.log");
    }
    if (lost) {  // one rank gone: the job goes
      for (process& r : ranks_) r.kill();
      start_job();
    }
    if (!reclaim_.running() && reclaim_.code() == 1) throw std::runtime_error("reclaim failed, see errors.log");
    if (!reclaim_.running() && unix_seconds() < s_.until) start_reclaim();
  }

  void kill_somebody() {
    const std::uint64_t whom = random_() % 4;
    if (whom == 0) reclaim_.kill();
    else if (whom == 1) ranks_[random_() % ranks_.size()].kill();
    else producers_[random_() % producers_.size()].kill();
    ++kills_[whom == 0 ? 0 : whom == 1 ? 1 : 2];
  }

  // I2, I3: every rank of every life saw one order, and in it each producer's batches once, in order, from the first.
  int verify() {
    std::map<std::uint64_t, std::string> order;
    std::set<std::uint64_t> ends;
    std::uint64_t lines = 0;
    for (const auto& file : std::filesystem::directory_iterator(s_.logs)) {
      if (!file.path().filename().string().starts_with("life-")) continue;
      std::ifstream in(file.path());
      std::optional<std::uint64_t> last;
      for (std::string line; std::getline(in, line);) {
        if (line.starts_with("end ")) {
          ends.insert(std::stoull(line.substr(4)));
          continue;
        }
        ++lines;
        const std::size_t space = line.find(' ');
        const std::uint64_t step = std::stoull(line.substr(0, space));
        if (last && step != *last + 1) return broken("I2: " + file.path().string() + " jumps to step " + std::to_string(step));
        last = step;
        const auto [at, fresh] = order.emplace(step, line.substr(space + 1));
        if (!fresh && at->second != line.substr(space + 1)) {
          return broken("I2: step " + std::to_string(step) + " is " + at->second + " and " + line.substr(space + 1));
        }
      }
    }
    if (ends.size() != 1) return broken("the ranks ended at " + std::to_string(ends.size()) + " different steps");
    std::map<std::string, std::uint64_t> next;
    std::uint64_t step = 0;
    for (const auto& [at, whose] : order) {
      if (at != step++) return broken("no rank saw step " + std::to_string(step - 1));
      const std::string producer = whose.substr(0, whose.find(' '));
      const std::uint64_t seq = std::stoull(whose.substr(whose.find(' ') + 1));
      if (seq != next[producer]++) return broken("I3: step " + std::to_string(at) + " is " + whose + ", expected " + std::to_string(next[producer] - 1));
    }
    if (step != *ends.begin()) return broken("the stream has " + std::to_string(*ends.begin()) + " steps, the ranks saw " + std::to_string(step));
    double worst = 0;
    std::uint64_t sweeps = 0, removed = 0, orphans = 0, buried = 0, failed = 0;
    std::ifstream in(s_.logs + "/reclaim.log");
    for (std::uint64_t trim, end, bytes, window, in_flight, keys, orphan, versions, failures;
         in >> trim >> end >> bytes >> window >> in_flight >> keys >> orphan >> versions >> failures;) {
      ++sweeps;
      removed += keys;
      orphans += orphan;
      buried += versions;
      failed += failures;
      if (trim > 0) worst = std::max(worst, (static_cast<double>(bytes) - static_cast<double>(in_flight)) / static_cast<double>(window));
    }
    std::cout << "steps " << step << ", delivered " << lines << ", lives of the job " << life_ << "; killed: reclaim " << kills_[0] << ", ranks "
              << kills_[1] << ", producers " << kills_[2] << "; reclaim runs " << sweeps << ": batches removed " << removed << ", orphans "
              << orphans << ", versions buried " << buried << ", failed keys " << failed << "; bytes / window at most " << worst << "\n";
    if (worst > 1.1) {
      std::cout << "FAILED: bytes in the bucket above 1.1 x the window\n";
      return 3;
    }
    std::cout << "all held\n";
    return 0;
  }
  int broken(const std::string& why) {
    std::cout << "FAILED: " << why << "\n";
    return 1;
  }

  settings s_;
  bw::random64 random_;
  std::vector<process> producers_, ranks_;
  process reclaim_;
  std::uint32_t life_ = 0;
  std::array<std::uint64_t, 3> kills_{};
};

}  // namespace

int main(int argc, char** argv) {
  bench::arguments a(argc, argv, usage);
  settings s;
  s.logs = a.text("logs", (std::filesystem::temp_directory_path() / ("batchweave-soak-" + std::to_string(::getpid()))).string());
  s.url = a.text("url", "file://" + s.logs + "/stream?create=on");
  s.minutes = a.number("minutes", s.minutes);
  s.producers = std::max<std::size_t>(1, a.count("producers", s.producers));
  s.batch_kib = std::max<std::size_t>(1, a.count("batch-kib", s.batch_kib));
  s.rate = std::max(0.1, a.number("rate", s.rate));
  s.every = std::max<std::size_t>(1, a.count("every", s.every));
  s.kill_every = a.number("kill-every", s.kill_every);
  s.seed = a.count("seed", s.seed);
  s.role = a.text("role");
  s.name = a.text("name");
  s.rank = static_cast<std::uint32_t>(a.count("rank", 0));
  s.world = static_cast<std::uint32_t>(a.count("world", 1));
  s.life = static_cast<std::uint32_t>(a.count("life", 0));
  s.start = a.count("start", 0);
  s.until = a.count("until", 0);
  a.done();
  if (!s.role.empty()) return child(s);
  std::filesystem::create_directories(s.logs);
  try {
    return soak(s).go();
  } catch (const std::exception& e) {
    std::cout << "FAILED: " << e.what() << "\n";
    return 1;
  }
}
