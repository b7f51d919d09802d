// A user's program: creates a stream in memory, publishes one batch, reads it back.
#include <batchweave/consumer.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/stream.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

asio::awaitable<void> round_trip(bw::memory_store store) {
  bw::stream_options stream;
  stream.slices(1);
  co_await bw::create_stream(store, stream);
  bw::producer_options produce("p");
  auto producer = co_await bw::open_producer(store, produce);
  std::vector<bw::byte_buffer> slices;
  slices.push_back(bw::byte_buffer::copy_of(bw::as_bytes("hello")));
  bw::global_batch batch(std::move(slices));
  co_await producer.publish(std::move(batch), std::string("1"));
  co_await producer.close();
  bw::consumer_options consume("c");
  consume.start_at(0);
  auto consumer = co_await bw::open_consumer(store, consume);
  auto slice = co_await consumer.next();
  if (!slice || bw::as_text(slice->bytes()) != "hello") throw std::runtime_error("wrong bytes");
}

int main() {
  asio::io_context context;
  std::exception_ptr thrown;
  bw::memory_store store;
  asio::co_spawn(context, round_trip(store), [&thrown](std::exception_ptr e) { thrown = e; });
  context.run();
  if (thrown) std::rethrow_exception(thrown);
}
