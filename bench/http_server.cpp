// The benchmark server on its own, for wrk, curl or another machine's client: bench/http_server [--port P] [--size-mib N] [--keep-kib N]
#include "range_server.hpp"
#include "support.hpp"

int main(int argc, char** argv) {
  bench::arguments args(argc, argv,
                        "http_server [--port P] [--size-mib N] [--keep-kib N]\n"
                        "  GET /bucket/range: N MiB of a pattern (256), Range honoured; PUT keeps bodies up to --keep-kib (1024)");
  const auto port = static_cast<std::uint16_t>(args.count("port", 0));
  const std::uint64_t size = args.count("size-mib", 256) << 20;
  const std::uint64_t keep = args.count("keep-kib", 1024) << 10;
  args.done();
  try {
    const auto [fd, bound] = bench::listen_on_loopback(port);
    std::cout << "http://127.0.0.1:" << bound << "/bucket/range" << std::endl;
    bench::range_server(fd, size, keep).run();
  } catch (const std::exception& e) {
    std::cerr << "http_server: " << e.what() << '\n';
    return 1;
  }
}
