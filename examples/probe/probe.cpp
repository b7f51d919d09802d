// Says whether a store is fit for a stream, and what else it does otherwise than the library expects.
//
//   probe s3://bucket/prefix?endpoint=http://host:9000
//   probe s3://bucket/prefix?endpoint=http://host:9000,s3://bucket/prefix?endpoint=http://host:9050      two gateways of one store
//   probe --row NAME URL      one line of a table; probe --header prints its head
//
// Exit status: 0 a stream can live there, 3 it cannot (the reason is printed), 1 it cannot be reached, 2 wrong usage.
// Everything is written below the prefix under random names and removed again.
#include <batchweave/base/random.hpp>
#include <batchweave/store/open.hpp>
#include <batchweave/store/probe.hpp>
#include <batchweave/testing/store_conformance.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bw = batchweave;
namespace asio = boost::asio;

namespace {

/// Takes turns between several ways to one store, so that each request may meet another gateway than the one before.
class in_turns {
 public:
  explicit in_turns(std::vector<bw::any_store> ways) : ways_(std::make_shared<std::vector<bw::any_store>>(std::move(ways))), turn_(std::make_shared<std::size_t>(0)) {}
  asio::awaitable<bw::result<bw::read_outcome>> get(std::string key, bw::byte_range range, bw::mutable_buffers into) {
    return next().get(std::move(key), range, std::move(into));
  }
  asio::awaitable<bw::result<bw::put_outcome>> put(std::string key, bw::const_buffers body, bw::put_condition condition) {
    return next().put(std::move(key), std::move(body), std::move(condition));
  }
  asio::awaitable<bw::result<std::optional<bw::object_info>>> head(std::string key) { return next().head(std::move(key)); }
  asio::awaitable<bw::result<bw::list_page>> list(std::string prefix, std::string after, std::size_t max) {
    return next().list(std::move(prefix), std::move(after), max);
  }
  asio::awaitable<bw::result<std::vector<bw::remove_failure>>> remove(std::vector<std::string> keys) { return next().remove(std::move(keys)); }
  bw::store_capabilities capabilities() const { return ways_->front().capabilities(); }
  std::string name() const { return ways_->front().name() + (ways_->size() > 1 ? " and " + std::to_string(ways_->size() - 1) + " more" : std::string()); }

 private:
  bw::any_store& next() { return (*ways_)[(*turn_)++ % ways_->size()]; }
  std::shared_ptr<std::vector<bw::any_store>> ways_;
  std::shared_ptr<std::size_t> turn_;
};
static_assert(bw::object_store<in_turns>);

struct findings {
  std::optional<bw::failure> refused;  // by the probe that runs whenever a stream is created
  double probe_seconds = 0;
  std::vector<bw::testing::conformance_section> sections;
  std::string signatures = "-";  // "ok" when a wrong secret key is refused
};

asio::awaitable<void> examine(in_turns store, findings& f) {
  const bw::random64 random;
  const auto begin = std::chrono::steady_clock::now();
  bw::result<void> verdict = co_await bw::probe_store(store, random);
  f.probe_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!verdict) f.refused = verdict.error();
  if (f.refused && f.refused->code() != bw::errc::store_unsafe) co_return;  // nothing else would work
  f.sections = co_await bw::testing::check_store_by_section(store, random);
}

/// A store that does not check who asks is fine for tests only.
asio::awaitable<void> knock(bw::any_store store, findings& f) {
  std::string key("probe-signature");
  bw::result<std::optional<bw::object_info>> there = co_await store.head(key);
  f.signatures = there ? "NO" : there.error().status() == 403 ? "ok" : "?";
}

void run(asio::io_context& context, asio::awaitable<void> work) {
  std::exception_ptr thrown;
  asio::co_spawn(context, std::move(work), [&](std::exception_ptr e) { thrown = e; });
  context.restart();
  context.run();
  if (thrown) std::rethrow_exception(thrown);
}

const std::vector<std::string> columns{"absence", "create", "race", "overwrite", "if-match", "ranges", "pieces", "large", "list", "nested", "keys", "remove", "whole"};

void header() {
  std::printf("| %-22s | %-8s | %7s | %-10s |", "store", "probe", "seconds", "signatures");
  for (const auto& c : columns) std::printf(" %s |", c.c_str());
  std::printf("\n|---|---|---|---|");
  for (std::size_t i = 0; i < columns.size(); ++i) std::printf("---|");
  std::printf("\n");
}

std::string cell(const findings& f, const std::string& column) {
  for (const auto& s : f.sections) {
    if (s.name == column) return s.violations.empty() ? "ok" : "NO";
  }
  return "-";
}

void row(const std::string& name, const findings& f) {
  std::printf("| %-22s | %-8s | %7.1f | %-10s |", name.c_str(), f.refused ? "REFUSED" : "accepted", f.probe_seconds, f.signatures.c_str());
  for (const auto& c : columns) std::printf(" %-*s |", static_cast<int>(c.size()), cell(f, c).c_str());
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--header"}) {
    header();
    return 0;
  }
  std::string name;
  if (arguments.size() == 3 && arguments[0] == "--row") {
    name = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  if (arguments.size() != 1 || arguments[0].starts_with("--")) {
    std::cerr << "usage: probe [--row NAME] URL[,URL ...] | --header\n";
    return 2;
  }
  try {
    asio::io_context context(1);
    std::vector<bw::any_store> ways;
    std::optional<bw::any_store> stranger;
    std::string_view urls = arguments[0];
    while (!urls.empty()) {
      const std::string url(urls.substr(0, urls.find(',')));
      urls.remove_prefix(std::min(urls.size(), url.size() + 1));
      bw::result<bw::any_store> opened = bw::open_store(context.get_executor(), url);
      if (!opened) throw bw::error(opened.error());
      ways.push_back(*opened);
      if (!stranger && url.starts_with("s3://")) {
        bw::result<bw::s3_config> config = bw::s3_config::from_url(url);
        if (!config) throw bw::error(config.error());
        config->credentials(config->credentials().access_key(), "not-the-secret-key");
        stranger.emplace(bw::s3_store(context.get_executor(), *config));
      }
    }
    findings f;
    run(context, examine(in_turns(ways), f));
    if (stranger) run(context, knock(*stranger, f));
    std::FILE* details = name.empty() ? stdout : stderr;
    if (!name.empty()) row(name, f);
    else std::printf("%s: %s in %.1f s\n", ways.front().name().c_str(), f.refused ? "REFUSED" : "fit for a stream", f.probe_seconds);
    if (f.refused) std::fprintf(details, "  refused: %s\n", f.refused->what().c_str());
    for (const auto& s : f.sections) {
      for (const auto& v : s.violations) std::fprintf(details, "  %s: %s\n", s.name.c_str(), v.c_str());
    }
    if (f.signatures == "NO") std::fprintf(details, "  signatures: a wrong secret key is accepted\n");
    if (!f.refused) return 0;
    return f.refused->code() == bw::errc::store_unsafe || f.refused->code() == bw::errc::not_supported ? 3 : 1;
  } catch (const std::exception& e) {
    std::cerr << "probe: " << e.what() << '\n';
    return 1;
  }
}
