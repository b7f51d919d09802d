// A whole training input plane in one program: producers and ranks as processes, some of them killed, every token checked.
// See options.hpp for the command line, producing.hpp and training.hpp for what the two roles do.
#include "bigram.hpp"
#include "corpus.hpp"
#include "coverage.hpp"
#include "options.hpp"
#include "place.hpp"
#include "process.hpp"
#include "producing.hpp"
#include "report.hpp"
#include "training.hpp"

#include <batchweave/base/random.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/stream.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <thread>

namespace quickstart {

using seconds = std::chrono::duration<double>;

volatile std::sig_atomic_t interrupted = 0;

void check_interrupt() {
  if (interrupted) throw std::runtime_error("interrupted");
}

/// Runs `work` to its end, at most `limit`; rethrows what it throws.
void run(asio::io_context& context, asio::awaitable<void> work, std::chrono::seconds limit, const std::string& what) {
  bool done = false;
  std::exception_ptr thrown;
  asio::co_spawn(context, std::move(work), [&](std::exception_ptr e) {
    thrown = e;
    done = true;
  });
  const auto end = std::chrono::steady_clock::now() + limit;
  context.restart();
  while (!done) {
    context.run_for(std::chrono::milliseconds(50));
    check_interrupt();
    if (!done && std::chrono::steady_clock::now() > end) {
      throw std::runtime_error(what + " took more than " + std::to_string(limit.count()) + " s");
    }
    if (!done && context.stopped()) throw std::logic_error(what + " stopped without an end");
  }
  context.run_for(std::chrono::milliseconds(100));  // what was cancelled on the way out winds down
  if (thrown) std::rethrow_exception(thrown);
}

/// Makes the stream, and finds out now whether ranks can be opened on it, so that a wrong setting is told once and at once.
asio::awaitable<void> prepare(bw::any_store store, options o) {
  bw::stream_options stream;
  stream.slices(o.slices).producers(o.producers).codec(o.codec);
  co_await bw::create_stream(store, stream);
  bw::consumer_options rank("quickstart");
  rank.world_size(o.ranks).start_at(0);
  co_await bw::open_consumer(store, rank);
}

/// A child, which incarnation of it runs, and what it is for.
class member {
 public:
  member(std::string role_, std::uint32_t index_) : role(std::move(role_)), index(index_) {}
  std::string role;  ///< "producer" or "rank"
  std::uint32_t index;
  std::uint32_t incarnation = 0;
  bool kill_sent = false;
  bool finished = false;
  process child;

  std::string name() const { return role + " " + std::to_string(index); }
};

std::filesystem::path figures_file(const options& o, const std::string& role, std::uint32_t index, std::uint32_t incarnation) {
  return std::filesystem::path(o.work_folder) / (role + "-" + std::to_string(index) + "." + std::to_string(incarnation) + ".figures");
}
std::filesystem::path checkpoint_file(const options& o, std::uint32_t rank) {
  return std::filesystem::path(o.work_folder) / ("rank-" + std::to_string(rank) + ".checkpoint");
}

/// Starts the children, kills some, restarts them, and waits for all.
class supervisor {
 public:
  supervisor(options o, std::vector<std::string> child_arguments, std::uint64_t total_steps)
      : options_(std::move(o)), arguments_(std::move(child_arguments)), total_steps_(total_steps), random_(options_.seed) {
    for (std::uint32_t i = 0; i < options_.producers; ++i) members_.emplace_back("producer", i);
    for (std::uint32_t i = 0; i < options_.ranks; ++i) members_.emplace_back("rank", i);
    for (std::uint32_t i = 0; i < options_.kills; ++i) kill_at_.push_back(random_.uniform(0.05, 0.85));
    std::sort(kill_at_.begin(), kill_at_.end());
  }

  /// Throws std::runtime_error when a child fails or the time is up.
  void run(summary& result) {
    const auto begun = std::chrono::steady_clock::now();
    progress line(isatty(STDOUT_FILENO) == 1);
    for (member& m : members_) start(m);
    std::size_t kills = 0;
    while (unfinished() > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      check_interrupt();
      for (member& m : members_) collect(m, line, result);
      const std::uint64_t done = steps_of_slowest_rank();
      const seconds passed = std::chrono::steady_clock::now() - begun;
      char more[96];
      std::snprintf(more, sizeof more, "%zu kills, %zu processes, %.1f s", kills, unfinished(), passed.count());
      line.show(done, total_steps_, more);
      if (kills < kill_at_.size() && static_cast<double>(done) >= kill_at_[kills] * static_cast<double>(total_steps_)) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 30000));  // anywhere between two steps
        kill_one(kills % 2 == 0 ? "producer" : "rank", line);
        ++kills;
      }
      if (passed > std::chrono::seconds(options_.timeout)) {
        line.leave_line();
        throw std::runtime_error("not finished after " + std::to_string(options_.timeout) + " s (--timeout)");
      }
    }
    line.leave_line();
    result.seconds = seconds(std::chrono::steady_clock::now() - begun).count();
    for (const member& m : members_) {
      for (std::uint32_t i = 0; m.role == "producer" && i <= m.incarnation; ++i) {
        const figures f = figures::load(figures_file(options_, m.role, m.index, i));
        result.commits += f.commits;
        result.conflicts += f.conflicts;
        result.visible_ms.insert(result.visible_ms.end(), f.visible_ms.begin(), f.visible_ms.end());
      }
    }
  }

 private:
  void start(member& m) {
    std::vector<std::string> words{"--child", m.role, std::to_string(m.index), std::to_string(m.incarnation)};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    m.child = process(words, options_.timeout);
    m.kill_sent = false;
  }

  void collect(member& m, progress& line, summary& result) {
    exit_report how(0);
    if (!m.child.ended(how)) return;
    if (m.kill_sent && how.killed_by(SIGKILL)) {
      ++(m.role == "rank" ? result.kills_ranks : result.kills_producers);
      ++m.incarnation;
      start(m);
    } else if (how.clean()) {
      m.finished = true;
    } else {
      line.leave_line();
      throw std::runtime_error(m.name() + " " + how.text());
    }
  }

  std::size_t unfinished() const {
    return static_cast<std::size_t>(std::count_if(members_.begin(), members_.end(), [](const member& m) { return !m.finished; }));
  }

  std::uint64_t steps_of_slowest_rank() {
    std::uint64_t least = total_steps_;
    for (const member& m : members_) {
      if (m.role != "rank" || m.finished) continue;
      least = std::min(least, figures::load(figures_file(options_, m.role, m.index, m.incarnation)).steps);
    }
    return most_done_ = std::max(most_done_, least);
  }

  /// Kills a random running member of `role`, or of the other role when none is left.
  void kill_one(const std::string& role, progress& line) {
    std::vector<member*> victims;
    for (int any = 0; any < 2 && victims.empty(); ++any) {
      for (member& m : members_) {
        if (!m.finished && !m.kill_sent && (any || m.role == role)) victims.push_back(&m);
      }
    }
    if (victims.empty()) return;
    member& victim = *victims[random_() % victims.size()];
    victim.kill_sent = true;
    victim.child.kill();
    line.leave_line();
    std::printf("SIGKILL to %s (process %d), restarting it\n", victim.name().c_str(), static_cast<int>(victim.child.pid()));
  }

  options options_;
  std::vector<std::string> arguments_;
  std::uint64_t total_steps_;
  std::uint64_t most_done_ = 0;
  bw::random64 random_;
  std::vector<double> kill_at_;  // fractions of the run
  std::vector<member> members_;
};

/// Compares what the ranks learnt with what the input says.
std::vector<std::string> faults_in(const options& o, corpus& input, std::uint64_t total_steps) {
  std::vector<std::string> faults;
  bigram_model merged;
  coverage seen;
  for (std::uint32_t rank = 0; rank < o.ranks; ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    const std::optional<checkpoint> last = checkpoint::load(checkpoint_file(o, rank));
    if (!last) {
      faults.push_back(who + " left no checkpoint");
      continue;
    }
    if (last->steps != total_steps) {
      faults.push_back(who + " trained " + std::to_string(last->steps) + " steps, " + std::to_string(total_steps) + " were published");
    }
    if (last->samples != input.size()) {
      faults.push_back(who + " was told of " + std::to_string(last->samples) + " tokens, the input has " + std::to_string(input.size()));
    }
    merged.add(last->model);
    seen.add(last->seen);
  }
  const std::string hole = seen.fault(input.size());
  if (!hole.empty()) faults.push_back(hole);
  if (!(merged == train_directly(input))) faults.push_back("the merged model differs from the one counted directly from the input");
  return faults;
}

/// A folder that is removed with this object unless told to stay.
class temporary_folder {
 public:
  temporary_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "batchweave-quickstart-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::system_error(errno, std::generic_category(), pattern);
    path_ = pattern;
  }
  ~temporary_folder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  void keep() noexcept { keep_ = true; }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
  bool keep_ = false;
};

int parent(options o, std::vector<std::string> words) {
  any_policy(o.policy);
  corpus input(o.sources);
  if (o.passes == 0) o.passes = ((8u << 20) + input.one_pass() - 1) / input.one_pass();
  input.repeat(o.passes);
  std::uint64_t total_steps = 0, longest_share = 0;
  for (std::uint32_t i = 0; i < o.producers; ++i) {
    const share part(input, o, i);
    total_steps += part.steps;
    longest_share = std::max(longest_share, part.steps);
  }
  if (o.rate < 0) o.rate = static_cast<double>(longest_share) / 6;
  bw::random64 entropy;
  if (!o.seed_given) o.seed = entropy() % 1'000'000'000;

  temporary_folder work;
  if (o.keep) work.keep();
  o.work_folder = work.path();
  const bool own_store = o.store.empty();
  if (own_store) o.store = work.path();
  o.run_name = own_store ? "stream" : "run-" + std::to_string(entropy());

  asio::io_context context;
  const std::chrono::seconds limit(o.timeout);
  run(context, make_place(context.get_executor(), o), limit, "preparing the store");
  bw::any_store store = open_place(context.get_executor(), o);
  std::printf("input: %zu files, %llu bytes, %llu passes; %u producers, %u ranks, %u slices; stream in %s; seed %llu\n", input.files(),
              static_cast<unsigned long long>(input.one_pass()), static_cast<unsigned long long>(o.passes), o.producers, o.ranks, o.slices,
              store.name().c_str(), static_cast<unsigned long long>(o.seed));
  std::fflush(stdout);
  run(context, prepare(store, o), limit, "creating the stream");

  for (const auto& [name, value] : {std::pair{"--store", o.store}, std::pair{"--run-name", o.run_name},
                                    std::pair{"--work-folder", o.work_folder}, std::pair{"--passes", std::to_string(o.passes)},
                                    std::pair{"--rate", std::to_string(o.rate)}}) {
    words.push_back(name);
    words.push_back(value);
  }
  summary result;
  result.steps = total_steps;
  result.slices_per_step = o.slices;
  result.kills_asked = o.kills;
  result.tokens = input.size();
  result.bytes = total_steps * o.slices * (slice_header + o.tokens_per_slice() + 1);
  supervisor(o, words, total_steps).run(result);
  result.faults = faults_in(o, input, total_steps);
  std::printf("%s", result.text().c_str());
  if (!o.json.empty()) replace_file(o.json, result.json());

  if (!result.exactly_once()) {
    work.keep();
    std::printf("kept for inspection: %s, %s\n", store.name().c_str(), o.work_folder.c_str());
    return 1;
  }
  if (o.keep) {
    std::printf("kept: %s, %s\n", store.name().c_str(), o.work_folder.c_str());
  } else {
    run(context, remove_place(store), limit, "removing the stream");
  }
  return 0;
}

/// `words`: role, index, incarnation, then the options.
int child(const std::vector<std::string>& words) {
  const std::string role = words.at(0);
  const auto index = static_cast<std::uint32_t>(std::stoul(words.at(1)));
  const auto incarnation = static_cast<std::uint32_t>(std::stoul(words.at(2)));
  try {
    const options o = options::parse(std::vector<std::string>(words.begin() + 3, words.end()));
    const std::filesystem::path figures = figures_file(o, role, index, incarnation);
    asio::io_context context;
    bw::any_store store = open_place(context.get_executor(), o);
    const std::chrono::seconds limit(o.timeout);
    if (role == "producer") run(context, produce(store, o, index, figures), limit, "producing");
    else run(context, train(store, o, index, checkpoint_file(o, index), figures), limit, "training");
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "quickstart: %s %u: %s\n", role.c_str(), index, e.what());
    return 1;
  }
}

}  // namespace quickstart

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "--child") return quickstart::child(std::vector<std::string>(words.begin() + 1, words.end()));
  try {
    quickstart::options o = quickstart::options::parse(words);
    if (o.help) {
      std::cout << quickstart::usage;
      return 0;
    }
    const auto interrupt = [](int) { quickstart::interrupted = 1; };
    std::signal(SIGINT, interrupt);
    std::signal(SIGTERM, interrupt);
    return quickstart::parent(std::move(o), std::move(words));
  } catch (const std::exception& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "quickstart: %s\n", e.what());
    const auto* failed = dynamic_cast<const batchweave::error*>(&e);
    if (failed && failed->failure().code() == batchweave::errc::bucket_missing) {
      std::fprintf(stderr, "quickstart: --create-bucket makes a bucket that is missing\n");
    }
    return quickstart::interrupted ? 130 : 2;
  }
}
