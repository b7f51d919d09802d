// TLS for the connections: verification of peer and host name is on, the CA store is the system's or a named file.
#pragma once

#include <batchweave/base/error.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <memory>
#include <string>

namespace batchweave::http {

using tls_stream = asio::ssl::stream<asio::ip::tcp::socket&>;

/// `ca_file`: a PEM bundle to trust instead of the system's store (AWS_CA_BUNDLE); empty: the system's, where OpenSSL itself honours
/// SSL_CERT_FILE and SSL_CERT_DIR. errc::tls_failed when the bundle cannot be read.
inline result<std::shared_ptr<asio::ssl::context>> make_tls_context(const std::string& ca_file) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  error_code ec;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 | asio::ssl::context::no_sslv3 |
                           asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1,
                       ec);
  if (ca_file.empty()) context->set_default_verify_paths(ec);
  else context->load_verify_file(ca_file, ec);
  if (ec) {
    return failure(errc::tls_failed, "cannot read the CA certificates" + (ca_file.empty() ? std::string() : " in " + ca_file) + ": " + ec.message())
        .with_fate(fate::did_not_happen);
  }
  context->set_verify_mode(asio::ssl::verify_peer, ec);
  return context;
}

/// Server name indication and host name check for one connection.
inline void prepare_tls(tls_stream& stream, const std::string& host, bool is_address) {
  if (!is_address) SSL_set_tlsext_host_name(stream.native_handle(), host.c_str());
  error_code ec;
  stream.set_verify_mode(asio::ssl::verify_peer, ec);
  stream.set_verify_callback(asio::ssl::host_name_verification(host), ec);
}

}  // namespace batchweave::http
