// nginx as a benchmark server: one large file of the pattern, plain and over TLS, and an HTTPS face for a sink of uploads.
#pragma once

#include "child.hpp"
#include "range_server.hpp"

#include <batchweave/testing/s3_certificate.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace bench {

/// One nginx in a temporary folder, with one worker, on two free ports of 127.0.0.1. Answers GET /bucket/range with `object_bytes` of
/// the pattern, and hands /bucket/put* on to the server at `sink_port` while it reads. Throws when nginx does not start.
class nginx {
 public:
  static bool installed() { return std::system("command -v nginx >/dev/null 2>&1") == 0; }

  nginx(std::uint64_t object_bytes, std::uint16_t sink_port) : folder_(make_folder()) {
    try {
      start(object_bytes, sink_port);
    } catch (...) {
      process_.reset();
      std::filesystem::remove_all(folder_);
      throw;
    }
  }
  nginx(const nginx&) = delete;
  nginx& operator=(const nginx&) = delete;
  ~nginx() {
    process_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(plain_); }
  std::string tls_url() const { return "https://localhost:" + std::to_string(secure_); }
  /// The certificate of tls_url(), PEM.
  std::string ca_file() const { return folder_ + "/cert.pem"; }

 private:
  static std::string make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "batchweave-nginx.XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), "mkdtemp");
    return name;
  }

  void start(std::uint64_t object_bytes, std::uint16_t sink_port) {
    std::filesystem::create_directories(folder_ + "/www/bucket");
    {
      std::ofstream file(folder_ + "/www/bucket/range", std::ios::binary);
      std::vector<std::uint64_t> block(1 << 17);
      for (std::uint64_t at = 0; at < object_bytes; at += block.size() * 8) {
        for (std::size_t i = 0; i < block.size(); ++i) block[i] = pattern_at(at + i * 8);
        file.write(reinterpret_cast<const char*>(block.data()), static_cast<std::streamsize>(std::min<std::uint64_t>(block.size() * 8, object_bytes - at)));
      }
      if (!file.flush()) throw std::runtime_error("cannot write " + folder_ + "/www/bucket/range");
    }
    const auto certificate = batchweave::testing::s3_certificate::make();
    std::ofstream(ca_file()) << certificate.certificate();
    std::ofstream(folder_ + "/key.pem") << certificate.key();
    // nginx takes sockets over that are named in NGINX, as at an upgrade: these have no pacing of a host that is set to BBR.
    const auto [plain, plain_port] = listen_on_loopback(0);
    const auto [secure, secure_port] = listen_on_loopback(0);
    plain_ = plain_port;
    secure_ = secure_port;
    std::ofstream(folder_ + "/nginx.conf") << "daemon off; worker_processes 1; pid " << folder_ << "/pid; error_log " << folder_ << "/error.log;\n"
        << (::geteuid() == 0 ? "user root;\n" : "") << "events { worker_connections 1024; }\n"
        << "http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; client_max_body_size 0;\n"
        << "  client_body_buffer_size 1m; client_body_temp_path " << folder_ << "/t1; proxy_temp_path " << folder_ << "/t2; fastcgi_temp_path "
        << folder_ << "/t3; uwsgi_temp_path " << folder_ << "/t4; scgi_temp_path " << folder_ << "/t5;\n"
        << "  upstream sink { server 127.0.0.1:" << sink_port << "; keepalive 64; }\n"
        << "  server { listen 127.0.0.1:" << plain_ << "; listen 127.0.0.1:" << secure_ << " ssl; ssl_certificate " << ca_file()
        << "; ssl_certificate_key " << folder_ << "/key.pem; root " << folder_ << "/www;\n"
        << "    location /bucket/put { proxy_pass http://sink; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_request_buffering off; }\n"
        << "  }\n}\n";
    const std::vector<std::string> command{"nginx", "-p", folder_, "-e", folder_ + "/error.log", "-c", folder_ + "/nginx.conf"};
    process_ = std::make_unique<child_process>(command, -1, -1, std::vector<std::string>{"NGINX=" + std::to_string(plain) + ";" + std::to_string(secure) + ";"},
                                               std::vector<int>{plain, secure});
    // The sockets listen already, so that requests wait until nginx serves them; a configuration that it refuses ends it at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::close(plain);
    ::close(secure);
    if (!process_->running()) throw std::runtime_error("nginx did not start: " + error_log());
  }

  std::string error_log() const {
    std::ifstream in(folder_ + "/error.log");
    return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }

  const std::string folder_;
  std::uint16_t plain_ = 0, secure_ = 0;
  std::unique_ptr<child_process> process_;
};

}  // namespace bench
