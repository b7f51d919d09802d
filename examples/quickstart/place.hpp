// Where the stream of one run lies: a fresh folder or prefix below the store that the user named.
#pragma once

#include "options.hpp"

#include <batchweave/base/error.hpp>
#include <batchweave/s3/config.hpp>
#include <batchweave/store/any_store.hpp>
#include <batchweave/store/open.hpp>
#include <batchweave/store/s3.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace quickstart {

namespace bw = batchweave;
namespace asio = boost::asio;

/// The store URL of this run: what the user gave, with the name of the run at the end of its path.
inline std::string run_url(const options& o) {
  const bool has_query = o.store.starts_with("s3://") || o.store.starts_with("file:");
  const std::size_t mark = has_query ? o.store.find('?') : std::string::npos;
  std::string path = o.store.substr(0, mark);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::string query = mark == std::string::npos ? "" : o.store.substr(mark);
  if (o.store.starts_with("file:")) query += query.empty() ? "?create=on" : "&create=on";
  return path + "/" + o.run_name + query;
}

/// Throws batchweave::error.
inline bw::any_store open_place(asio::any_io_executor executor, const options& o) {
  if (o.store.starts_with("memory:")) throw std::invalid_argument("--store memory: cannot be shared by processes");
  return bw::open_store(std::move(executor), run_url(o)).value();
}

/// Makes what open_place needs: the folder, or with --create-bucket the bucket.
inline asio::awaitable<void> make_place(asio::any_io_executor executor, options o) {
  const std::string url = run_url(o);
  if (url.starts_with("s3://")) {
    if (!o.create_bucket) co_return;
    bw::s3_store store(std::move(executor), bw::s3_config::from_url(url).value());
    bw::result<void> made = co_await store.create_bucket();
    if (!made) throw bw::error(made.error());
  } else if (!url.starts_with("file:")) {
    std::filesystem::create_directories(url);
  }
}

/// Removes the stream of this run, whatever is in it.
inline asio::awaitable<void> remove_place(bw::any_store store) {
  for (;;) {
    const std::string all, first;
    bw::result<bw::list_page> page = co_await store.list(all, first, 1000);
    if (!page) throw bw::error(page.error());
    if (page->objects().empty()) break;
    std::vector<std::string> keys;
    for (const bw::object_info& o : page->objects()) keys.push_back(o.key());
    bw::result<std::vector<bw::remove_failure>> removed = co_await store.remove(std::move(keys));
    if (!removed) throw bw::error(removed.error());
    if (!removed->empty()) throw bw::error(removed->front().why());
  }
  const std::string name = store.name();
  if (name.starts_with("file://")) std::filesystem::remove_all(name.substr(7));
}

}  // namespace quickstart
