// TLS for the connections: verification of peer and host name is on, the CA store is the system's or a named file.
#pragma once

#include <batchweave/base/error.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/ssl/verify_context.hpp>

#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

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

/// Server name indication and the check of the certificate's names for one connection; an address is not indicated (RFC 6066) and checked against
/// the addresses of the certificate. OpenSSL's own check, which says afterwards what did not fit.
inline void prepare_tls(tls_stream& stream, const std::string& host, bool is_address) {
  SSL* const ssl = stream.native_handle();
  X509_VERIFY_PARAM* const checks = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(checks, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const bool set = is_address ? X509_VERIFY_PARAM_set1_ip_asc(checks, host.substr(0, host.find('%')).c_str()) == 1
                              : SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 && X509_VERIFY_PARAM_set1_host(checks, host.data(), host.size()) == 1;
  error_code ec;
  stream.set_verify_mode(asio::ssl::verify_peer, ec);
  if (!set) stream.set_verify_callback([](bool, asio::ssl::verify_context&) { return false; }, ec);
}

/// Why a handshake failed: what is wrong with the certificate, and what to do about it, where it was that.
inline std::string tls_problem(tls_stream& stream, const error_code& ec) {
  const long what = SSL_get_verify_result(stream.native_handle());
  if (what == X509_V_OK) return ec.message();
  std::string text = std::string("the certificate is refused: ") + X509_verify_cert_error_string(what);
  switch (what) {
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: return text + "; if it is the right one, name its authority in ca_file or AWS_CA_BUNDLE";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return text + "; it is for another server, or the endpoint should be written as the certificate has it";
    default: return text;
  }
}

}  // namespace batchweave::http
