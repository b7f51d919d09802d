// A storage policy of one's own: proves that it conforms, then runs a stream of 20 steps for two ranks over it.
// Usage: custom_store [file.db]   (default: a fresh file under the temporary directory, removed at the end)
#include "sqlite_store.hpp"

#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/stream.hpp>
#include <batchweave/testing/store_conformance.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

static_assert(bw::object_store<sqlite_store>);

constexpr int steps = 20;

asio::awaitable<void> produce(sqlite_store store) {
  bw::producer_options options("custom");
  auto producer = co_await bw::open_producer(store, options);
  for (int step = 0; step < steps; ++step) {
    std::vector<bw::byte_buffer> slices;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string text = "step " + std::to_string(step) + " rank " + std::to_string(rank);
      slices.push_back(bw::byte_buffer::copy_of(bw::as_bytes(text)));
    }
    bw::global_batch batch(std::move(slices));
    co_await producer.publish(std::move(batch), std::to_string(step + 1));
  }
  co_await producer.close();
}

asio::awaitable<int> consume(sqlite_store store, std::uint32_t rank) {
  bw::consumer_options options("run-1");
  options.rank(rank).world_size(2).start_at(0);
  auto consumer = co_await bw::open_consumer(store, options);
  int seen = 0;
  while (auto slice = co_await consumer.next()) {
    if (bw::as_text(slice->bytes()) != "step " + std::to_string(seen) + " rank " + std::to_string(rank)) {
      throw std::runtime_error("rank " + std::to_string(rank) + " got other bytes at step " + std::to_string(seen));
    }
    ++seen;
  }
  co_return seen;
}

asio::awaitable<void> run(sqlite_store store) {
  const bw::random64 random;
  const std::vector<std::string> wrong = co_await bw::testing::check_store(store, random);
  for (const std::string& line : wrong) std::cerr << line << '\n';
  if (!wrong.empty()) throw std::runtime_error("the store does not conform");
  std::cout << store.name() << " conforms\n";

  bw::stream_options options;
  options.slices(2);
  co_await bw::create_stream(store, options);
  co_await produce(store);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const int seen = co_await consume(store, rank);
    if (seen != steps) throw std::runtime_error("rank " + std::to_string(rank) + " saw " + std::to_string(seen) + " steps");
    std::cout << "rank " << rank << ": " << seen << " steps, every byte as published\n";
  }
}

int main(int argc, char** argv) try {
  const bool temporary = argc < 2;
  const std::string file =
      temporary ? (std::filesystem::temp_directory_path() / ("batchweave-custom-" + std::to_string(getpid()) + ".db")).string() : argv[1];
  std::exception_ptr thrown;
  {
    asio::io_context context;
    asio::co_spawn(context, run(sqlite_store(file)), [&](std::exception_ptr e) { thrown = e; });
    context.run();
  }
  if (temporary) {
    for (const char* part : {"", "-wal", "-shm"}) std::filesystem::remove(file + part);
  }
  if (thrown) std::rethrow_exception(thrown);
} catch (const std::exception& e) {
  std::cerr << "custom_store: " << e.what() << '\n';
  return 1;
}
