// The smallest whole use: one producer publishes three steps for two ranks, and both ranks read theirs.
// Usage: hello [folder]   (default: a fresh folder under the temporary directory, removed at the end)
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/stream.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

asio::awaitable<void> produce(bw::file_store store) {
  bw::producer_options options("node-7");
  auto producer = co_await bw::open_producer(store, options);
  int step = producer.state().empty() ? 0 : std::stoi(std::string(producer.state()));  // where the last commit left off
  for (; step < 3; ++step) {
    std::vector<bw::byte_buffer> slices;  // one for each rank
    for (int rank = 0; rank < 2; ++rank) {
      const std::string text = "step " + std::to_string(step) + " for rank " + std::to_string(rank);
      slices.push_back(bw::byte_buffer::copy_of(bw::as_bytes(text)));
    }
    bw::global_batch batch(std::move(slices));
    co_await producer.publish(std::move(batch), std::to_string(step + 1));  // durable, with the state to resume from
  }
  co_await producer.close();  // all is committed, and the stream ends here
}

asio::awaitable<void> train(bw::file_store store, std::uint32_t rank) {
  bw::consumer_options options("run-1");
  options.rank(rank).world_size(2).start_at(0);
  auto consumer = co_await bw::open_consumer(store, options);
  while (auto slice = co_await consumer.next()) {  // waits until the step is visible, fetches ahead
    std::cout << "rank " << rank << " got '" << bw::as_text(slice->bytes()) << "', cursor " << consumer.cursor().to_string() << '\n';
  }
}

asio::awaitable<void> hello(bw::file_store store) {
  bw::stream_options options;
  options.slices(2);
  co_await bw::create_stream(store, options);
  co_await produce(store);
  co_await train(store, 0);
  co_await train(store, 1);
}

int main(int argc, char** argv) try {
  const bool temporary = argc < 2;
  const std::filesystem::path folder =
      temporary ? std::filesystem::temp_directory_path() / ("batchweave-hello-" + std::to_string(getpid())) : argv[1];
  std::filesystem::create_directories(folder);
  asio::io_context context;
  std::exception_ptr thrown;
  asio::co_spawn(context, hello(bw::file_store(folder.string())), [&](std::exception_ptr e) { thrown = e; });
  context.run();
  if (temporary) std::filesystem::remove_all(folder);
  if (thrown) std::rethrow_exception(thrown);
} catch (const std::exception& e) {
  std::cerr << "hello: " << e.what() << '\n';
  return 1;
}
