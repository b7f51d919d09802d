// An Asio program that was there before: two threads, callbacks, a ticking timer, signals. It gets a producer fed by callbacks and a
// consumer read through futures, so no coroutine of its own. SIGINT cancels both through cancellation slots; then the program re-opens the
// stream and proves that every acknowledged batch is in it once, in order, and that the consumer's cursor continues exactly.
//
// Usage: asio_app [--sigint-after MS] [folder]
//   --sigint-after MS  raise SIGINT by itself after so many milliseconds (otherwise press Ctrl-C)
//   folder             where the stream lives; must not hold one yet (default: a fresh temporary folder, removed at the end)
// Exit code: 0 nothing lost, 1 otherwise.
#include <batchweave/as_result.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/stream.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_future.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <future>
#include <iostream>
#include <mutex>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

using strand = asio::strand<asio::io_context::executor_type>;
using producer = bw::basic_producer<bw::file_store>;
using consumer = bw::consumer<bw::file_store>;

std::string content_of(std::uint64_t seq) { return "batch " + std::to_string(seq); }

bool was_cancelled(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const boost::system::system_error& s) {
    return s.code() == asio::error::operation_aborted || s.code() == make_error_code(bw::errc::cancelled);
  } catch (...) {
    return false;
  }
}

std::string what_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    return x.what();
  } catch (...) {
    return "unknown exception";
  }
}

/// Publishes one batch after the other; every step is a completion callback on the strand. All members are touched on the strand only.
class feed {
  template <class Callback>
  auto slot(Callback callback) {
    return asio::bind_cancellation_slot(cancel_.slot(), std::move(callback));
  }

 public:
  /// `failed` is called on the strand when the producer ends without having been asked to.
  feed(asio::io_context& context, bw::file_store store, std::function<void()> failed)
      : strand_(asio::make_strand(context)), store_(std::move(store)), failed_(std::move(failed)) {}

  void start() {
    bw::producer_options options("feed");
    // Any completion token will do; here it is a plain function.
    asio::co_spawn(strand_, bw::open_producer(store_, options), slot([this](std::exception_ptr e, producer p) {
                     if (e) return finish(e);
                     producer_ = std::move(p);
                     publish_next();
                   }));
  }

  /// Any thread. `done` runs on the strand when the producer has left the stream.
  void stop(std::function<void()> done) {
    asio::post(strand_, [this, done = std::move(done)] {
      done_ = done;
      stopping_ = true;
      if (finished_) return done_();
      cancel_.emit(asio::cancellation_type::terminal);
    });
  }

  std::uint64_t acknowledged() const noexcept { return acknowledged_; }
  const std::string& problem() const noexcept { return problem_; }

 private:
  void publish_next() {
    if (stopping_) return leave();
    const std::uint64_t seq = producer_.next_seq();
    std::vector<bw::byte_buffer> slices;
    slices.push_back(bw::byte_buffer::copy_of(bw::as_bytes(content_of(seq))));
    asio::co_spawn(strand_, producer_.publish(bw::global_batch(std::move(slices)), std::to_string(seq + 1)),
                   slot([this](std::exception_ptr e, std::uint64_t published) {
                     if (e && !was_cancelled(e)) return finish(e);
                     // A cancelled publish may have happened: it is not counted, and the check at the end allows for it.
                     if (!e) acknowledged_ = published + 1;
                     publish_next();
                   }));
  }

  // Flushes what was accepted and leaves the stream open for a later incarnation. Not under the cancelled slot.
  void leave() {
    asio::co_spawn(strand_, producer_.detach(), [this](std::exception_ptr e) { finish(e); });
  }

  void finish(std::exception_ptr e) {
    finished_ = true;
    if (e && !was_cancelled(e)) problem_ = "producer: " + what_of(e);
    producer_ = producer();
    if (done_) done_();
    else failed_();
  }

  strand strand_;
  bw::file_store store_;
  asio::cancellation_signal cancel_;
  producer producer_;
  std::atomic<std::uint64_t> acknowledged_{0};
  bool stopping_ = false, finished_ = false;
  std::string problem_;
  std::function<void()> failed_, done_;
};

/// A blocking thread of the old program that reads through futures.
class reader {
 public:
  reader(asio::io_context& context, bw::file_store store) : strand_(asio::make_strand(context)), store_(std::move(store)) {}

  void start() { thread_ = std::thread([this] { work(); }); }
  /// Any thread.
  void stop() {
    asio::post(strand_, [this] {
      stopping_ = true;
      cancel_.emit(asio::cancellation_type::terminal);
    });
  }
  void join() { thread_.join(); }

  std::uint64_t steps() const noexcept { return steps_; }
  /// After join().
  bw::cursor cursor() const { return cursor_; }
  const std::string& problem() const noexcept { return problem_; }

 private:
  void work() {
    try {
      bw::consumer_options options("asio-app");
      options.start_at(0).poll_interval(std::chrono::milliseconds(20));
      consumer reading = asio::co_spawn(strand_, bw::open_consumer(store_, options), asio::use_future).get();
      cursor_ = reading.cursor();
      for (;;) {
        bw::result<std::optional<bw::slice>> got = next(reading).get();
        if (!got && got.error().code() == bw::errc::cancelled) break;
        const std::optional<bw::slice> slice = std::move(got.value());
        if (!slice) break;
        if (bw::as_text(slice->bytes()) != content_of(slice->step())) throw std::runtime_error("wrong bytes at step " + std::to_string(slice->step()));
        ++steps_;
        cursor_ = reading.cursor();
      }
    } catch (...) {
      if (!was_cancelled(std::current_exception())) problem_ = "consumer: " + what_of(std::current_exception());
    }
  }

  // Slots and signals have no locks: the operation is started where stop() emits, on the strand. as_result: a failure comes back as a
  // value, so that no exception crosses threads.
  using outcome = bw::result<std::optional<bw::slice>>;
  std::future<outcome> next(consumer& from) {
    auto begin = [this, &from] {
      if (!stopping_) return asio::co_spawn(strand_, bw::as_result(from.next()), asio::bind_cancellation_slot(cancel_.slot(), asio::use_future));
      std::promise<outcome> stopped;
      stopped.set_value(bw::failure(bw::errc::cancelled, "the program is stopping"));
      return stopped.get_future();
    };
    return asio::post(strand_, asio::use_future(begin)).get();
  }

  strand strand_;
  bw::file_store store_;
  asio::cancellation_signal cancel_;
  std::thread thread_;
  bool stopping_ = false;  // on the strand
  std::atomic<std::uint64_t> steps_{0};
  bw::cursor cursor_;
  std::string problem_;
};

/// The program as it was: a timer that ticks.
class ticker {
 public:
  ticker(asio::io_context& context, std::function<void()> tick) : timer_(asio::make_strand(context)), tick_(std::move(tick)) {}
  void start() {
    timer_.expires_after(std::chrono::milliseconds(250));
    timer_.async_wait([this](const boost::system::error_code& ec) {
      if (ec || stopped_) return;
      tick_();
      start();
    });
  }
  void stop() {
    asio::post(timer_.get_executor(), [this] {
      stopped_ = true;
      timer_.cancel();
    });
  }

 private:
  asio::steady_timer timer_;
  std::function<void()> tick_;
  bool stopped_ = false;
};

/// Runs `context` until `operation` has ended, and returns what it returned. The context may still have work then: an open producer or
/// consumer goes on in the background.
template <class T>
T wait_for(asio::io_context& context, asio::awaitable<T> operation) {
  auto outcome = asio::co_spawn(context, std::move(operation), asio::use_future);
  context.restart();
  while (outcome.wait_for(std::chrono::seconds(0)) != std::future_status::ready) context.run_one();
  return outcome.get();
}

/// Reads to the end of the stream. Returns what is wrong, or nothing.
std::string read_rest(asio::io_context& context, bw::file_store store, bw::consumer_options options, std::uint64_t step, std::uint64_t end) {
  consumer reading = wait_for(context, bw::open_consumer(store, std::move(options)));
  while (std::optional<bw::slice> slice = wait_for(context, reading.next())) {
    if (slice->step() != step || bw::as_text(slice->bytes()) != content_of(step)) return "step " + std::to_string(step) + " is wrong";
    ++step;
  }
  return step == end ? "" : "the stream ends at step " + std::to_string(step) + " instead of " + std::to_string(end);
}

/// Re-opens the stream, ends it, reads it whole and from `cursor`, and compares. Returns what is wrong, or nothing.
std::string verify(bw::file_store store, std::uint64_t acknowledged, std::uint64_t seen, bw::cursor cursor) {
  asio::io_context context;
  bw::producer_options feeding("feed");
  producer again = wait_for(context, bw::open_producer(store, feeding));
  const std::uint64_t committed = again.next_seq();
  if (committed < acknowledged) {
    return std::to_string(acknowledged) + " batches were acknowledged, only " + std::to_string(committed) + " are in the stream";
  }
  if (committed > 0 && again.state() != std::to_string(committed)) {
    return "the state '" + std::string(again.state()) + "' does not belong to batch " + std::to_string(committed - 1);
  }
  wait_for(context, again.close());

  bw::consumer_options whole("check");
  whole.start_at(0);
  std::string wrong = read_rest(context, store, whole, 0, committed);
  if (!wrong.empty() || cursor.empty()) return wrong;
  if (cursor.next_step() != seen) return "the cursor is at step " + std::to_string(cursor.next_step()) + " after " + std::to_string(seen) + " steps";
  bw::consumer_options rest("asio-app");
  rest.start(cursor);
  return read_rest(context, store, rest, seen, committed);
}

int run(const std::filesystem::path& folder, std::optional<long> sigint_after) {
  std::filesystem::create_directories(folder);
  bw::file_store store(folder.string());
  asio::io_context context;
  {
    auto made = asio::co_spawn(context, bw::create_stream(store, bw::stream_options()), asio::use_future);
    context.run();
    made.get();
    context.restart();
  }

  std::function<void()> shut_down;
  feed feeding(context, store, [&] { shut_down(); });
  reader reading(context, store);
  ticker tick(context, [&] {
    std::cout << "tick: " << feeding.acknowledged() << " batches acknowledged, " << reading.steps() << " steps read\n" << std::flush;
  });
  const asio::any_io_executor one_at_a_time = asio::make_strand(context);
  asio::signal_set signals(one_at_a_time, SIGINT, SIGTERM);
  asio::steady_timer interrupt(one_at_a_time);
  std::once_flag once;
  shut_down = [&] {
    std::call_once(once, [&] {
      tick.stop();
      reading.stop();
      feeding.stop([] { std::cout << "the producer has left the stream\n" << std::flush; });
    });
  };
  signals.async_wait([&](const boost::system::error_code& ec, int) {
    if (ec) return;
    signals.clear();  // a second Ctrl-C ends the program the hard way
    std::cout << "interrupted: cancelling\n" << std::flush;
    shut_down();
  });
  if (sigint_after) {
    interrupt.expires_after(std::chrono::milliseconds(*sigint_after));
    interrupt.async_wait([](const boost::system::error_code& ec) {
      if (!ec) std::raise(SIGINT);
    });
  }

  tick.start();
  feeding.start();
  // The reader's thread blocks in futures, so that the context must have work until it ends.
  auto work = asio::make_work_guard(context);
  std::thread first([&] { context.run(); }), second([&] { context.run(); });
  reading.start();
  reading.join();
  shut_down();  // already done, unless the reader failed
  asio::post(one_at_a_time, [&] {
    signals.cancel();
    interrupt.cancel();
  });
  work.reset();
  first.join();
  second.join();

  std::string wrong = feeding.problem();
  if (wrong.empty()) wrong = reading.problem();
  if (wrong.empty()) wrong = verify(store, feeding.acknowledged(), reading.steps(), reading.cursor());
  std::cout << "acknowledged batches  " << feeding.acknowledged() << "\nsteps read            " << reading.steps()
            << "\nnothing lost          " << (wrong.empty() ? "yes" : "NO: " + wrong) << '\n';
  return wrong.empty() ? 0 : 1;
}

int main(int argc, char** argv) try {
  std::optional<long> sigint_after;
  std::filesystem::path folder;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--sigint-after" && i + 1 < argc) {
      sigint_after = std::stol(argv[++i]);
    } else if (word == "--help" || word == "-h" || word.substr(0, 1) == "-" || !folder.empty()) {
      std::cout << "usage: asio_app [--sigint-after MS] [folder]\n";
      return word == "--help" || word == "-h" ? 0 : 2;
    } else {
      folder = word;
    }
  }
  const bool temporary = folder.empty();
  if (temporary) folder = std::filesystem::temp_directory_path() / ("batchweave-asio-app-" + std::to_string(getpid()));
  const int code = run(folder, sigint_after);
  if (temporary) std::filesystem::remove_all(folder);
  return code;
} catch (const std::exception& e) {
  std::cerr << "asio_app: " << e.what() << '\n';
  return 1;
}
