// HTTP answers as the client reads them: an exchange on a socket whose other end sends the input and closes.
#include "fuzz.hpp"

#include <batchweave/http/exchange.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace bw = batchweave;
namespace asio = boost::asio;
namespace http = batchweave::http;

namespace {

struct read_way {
  bool no_body, straight;
  std::size_t room;
};

// What the S3 client does with an answer, and what must hold afterwards.
asio::awaitable<void> read(http::connection& line, read_way how) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  http::timeouts limits;
  http::exchange exchange(executor, line, limits, bw::time_point::max());
  std::string request("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
  const bw::const_buffers nothing;
  std::optional<bw::failure> bad = co_await exchange.request(std::move(request), nothing, how.no_body);
  fuzz::require(!line.reusable(), "a connection is not reusable before its answer was read");
  if (bad) co_return;
  const http::response_head& head = exchange.head();
  fuzz::require(head.status >= 200 && head.status <= 999, "an answer that is delivered is a final one");
  fuzz::require(!(head.chunked && head.content_length), "chunks win over a length");
  for (const auto& [name, value] : head.fields) {
    fuzz::require(!name.empty() && value.find_first_of("\r\n") == std::string::npos, "a header field is one line");
  }
  if (how.no_body || head.status == 204 || head.status == 304) {
    exchange.finish();
    co_return;
  }
  if (how.straight && head.content_length && *head.content_length <= how.room) {
    std::vector<std::byte> memory(static_cast<std::size_t>(*head.content_length));
    bw::mutable_bytes all(memory);
    const std::size_t cut = memory.size() / 3;
    const bw::mutable_buffers into{all.first(cut), all.subspan(cut)};
    std::uint64_t received = 0;
    bad = co_await exchange.read_into(into, received);
    fuzz::require(received <= memory.size(), "no more bytes are counted than there is room for");
    fuzz::require(bad || received == memory.size(), "a body that was read is whole");
  } else {
    std::string text;
    bad = co_await exchange.read_text(text, how.room);
    fuzz::require(bad || text.size() <= how.room, "a body keeps its limit");
    fuzz::require(bad || !head.content_length || text.size() == *head.content_length, "a body that was read is whole");
  }
  if (!bad) exchange.finish();
}

void answer_with(const std::uint8_t* data, std::size_t size, read_way how) {
  asio::io_context context(1);
  http::connection line(context.get_executor(), http::target(false, "x", 80, false));
  int ends[2];
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "the machine has sockets");
  line.socket().assign(asio::ip::tcp::v4(), ends[0]);
  fuzz::require(::send(ends[1], data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size), "the input fits the socket's buffer");
  ::shutdown(ends[1], SHUT_WR);
  bool done = false;
  asio::co_spawn(context, read(line, how), [&done](std::exception_ptr e) {
    done = true;
    if (e) std::rethrow_exception(e);
  });
  context.run_for(std::chrono::seconds(5));
  fuzz::require(done, "an answer that has ended does not hang the reader");
  ::close(ends[1]);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 100000) return 0;
  // The first byte chooses how the answer is read.
  const unsigned way = data[0];
  answer_with(data + 1, size - 1, read_way{(way & 1) != 0, (way & 2) != 0, (way & 4) != 0 ? std::size_t{64} : std::size_t{1} << 20});
  return 0;
}
