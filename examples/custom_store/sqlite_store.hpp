// An object store in one SQLite file: all that a storage policy of your own needs.
#pragma once

#include <batchweave/store/store.hpp>

#include <sqlite3.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Several processes may use the file at once (WAL, busy timeout). Blocks the calling thread. One handle and its copies: one thread.
class sqlite_store {
  template <class T>
  using task = boost::asio::awaitable<batchweave::result<T>>;

 public:
  explicit sqlite_store(const std::string& file) : file_(file) {
    sqlite3* raw = nullptr;
    const int opened = sqlite3_open(file.c_str(), &raw);
    db_.reset(raw, sqlite3_close_v2);
    sqlite3_busy_timeout(raw, 60000);
    if (opened != SQLITE_OK || sqlite3_exec(raw, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS object"
                                                 "(key TEXT PRIMARY KEY COLLATE BINARY, body BLOB NOT NULL, etag TEXT NOT NULL) WITHOUT ROWID",
                                            nullptr, nullptr, nullptr) != SQLITE_OK) {
      throw batchweave::error(failed("open"));
    }
  }

  task<batchweave::read_outcome> get(std::string key, batchweave::byte_range range, batchweave::mutable_buffers into) {
    row q(db_.get(), "SELECT body, etag FROM object WHERE key = ?1");
    q.text(1, key);
    if (const int r = q.step(); r != SQLITE_ROW) co_return r == SQLITE_DONE ? batchweave::result<batchweave::read_outcome>(batchweave::read_outcome()) : failed("get " + key);
    const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(q.get(), 0));
    const auto size = static_cast<std::uint64_t>(sqlite3_column_bytes(q.get(), 0));
    const std::uint64_t first = std::min(range.offset(), size), wanted = std::min(range.length(), size - first);
    std::uint64_t done = 0;
    for (const batchweave::mutable_bytes piece : into) {
      const std::size_t n = std::min<std::size_t>(piece.size(), wanted - done);
      if (n) std::copy_n(bytes + first + done, n, piece.data());
      done += n;
    }
    co_return batchweave::read_outcome(wanted, size, q.string(1));
  }

  task<batchweave::put_outcome> put(std::string key, batchweave::const_buffers body, batchweave::put_condition condition) {
    row q(db_.get(), condition.absent() ? "INSERT INTO object VALUES(?1, ?2, hex(randomblob(16))) ON CONFLICT DO NOTHING RETURNING etag"
                     : condition.etag() ? "UPDATE object SET body = ?2, etag = hex(randomblob(16)) WHERE key = ?1 AND etag = ?3 RETURNING etag"
                                        : "INSERT OR REPLACE INTO object VALUES(?1, ?2, hex(randomblob(16))) RETURNING etag");
    std::string joined;
    for (const batchweave::const_bytes piece : body) joined += batchweave::as_text(piece);
    q.text(1, key);
    sqlite3_bind_blob64(q.get(), 2, joined.data(), joined.size(), SQLITE_STATIC);
    if (condition.etag()) q.text(3, *condition.etag());
    int r = q.step();
    std::string etag = r == SQLITE_ROW ? q.string(0) : std::string();
    while (r == SQLITE_ROW) r = q.step();  // the write is committed when the statement is done
    if (r != SQLITE_DONE) co_return failed("put " + key);
    co_return etag.empty() ? batchweave::put_outcome::condition_failed() : batchweave::put_outcome::done(std::move(etag));
  }

  task<std::optional<batchweave::object_info>> head(std::string key) {
    row q(db_.get(), "SELECT length(body), etag FROM object WHERE key = ?1");
    q.text(1, key);
    const int r = q.step();
    if (r == SQLITE_DONE) co_return std::optional<batchweave::object_info>();
    if (r != SQLITE_ROW) co_return failed("head " + key);
    co_return std::optional<batchweave::object_info>(batchweave::object_info(key, static_cast<std::uint64_t>(sqlite3_column_int64(q.get(), 0)), q.string(1)));
  }

  task<batchweave::list_page> list(std::string prefix, std::string after, std::size_t max) {
    row q(db_.get(), "SELECT key, length(body), etag FROM object WHERE key >= ?1 AND key > ?2 ORDER BY key");
    q.text(1, prefix), q.text(2, after);
    batchweave::list_page page;
    int r = q.step();
    for (; r == SQLITE_ROW && q.string(0).starts_with(prefix) && !page.more(); r = q.step()) {
      if (page.objects().size() == max) page.more(true);
      else page.objects().emplace_back(q.string(0), static_cast<std::uint64_t>(sqlite3_column_int64(q.get(), 1)), q.string(2));
    }
    if (r != SQLITE_ROW && r != SQLITE_DONE) co_return failed("list " + prefix);
    co_return page;
  }

  task<std::vector<batchweave::remove_failure>> remove(std::vector<std::string> keys) {
    std::vector<batchweave::remove_failure> failures;
    for (const std::string& key : keys) {
      row q(db_.get(), "DELETE FROM object WHERE key = ?1");
      q.text(1, key);
      if (q.step() != SQLITE_DONE) failures.emplace_back(key, failed("remove " + key));
    }
    co_return failures;
  }

  batchweave::store_capabilities capabilities() const { return batchweave::store_capabilities(); }
  std::string name() const { return "sqlite:" + file_; }

 private:
  /// One prepared statement.
  class row {
   public:
    row(sqlite3* db, const char* sql) { sqlite3_prepare_v2(db, sql, -1, &s_, nullptr); }
    row(const row&) = delete;
    row& operator=(const row&) = delete;
    ~row() { sqlite3_finalize(s_); }
    sqlite3_stmt* get() { return s_; }
    void text(int at, const std::string& v) { sqlite3_bind_text(s_, at, v.data(), static_cast<int>(v.size()), nullptr); }
    int step() { return sqlite3_step(s_); }
    std::string string(int at) { return reinterpret_cast<const char*>(sqlite3_column_text(s_, at)); }

   private:
    sqlite3_stmt* s_ = nullptr;
  };
  batchweave::failure failed(const std::string& what) const {
    return batchweave::failure(batchweave::errc::io_error, name() + ": " + what + ": " + sqlite3_errmsg(db_.get()));
  }

  std::string file_;
  std::shared_ptr<sqlite3> db_;
};
