// One list of faults for every operation that the client knows: what passes by itself is survived, what stays is reported for what it is.
#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/s3_world.hpp"

namespace asio = boost::asio;
namespace bw = batchweave;
using test::s3_world;

namespace {

using outcome = bw::result<bool>;  // true: the operation did what it is for

asio::awaitable<outcome> do_get(s3_world* w) {
  const auto r = co_await test::get_text(w->store, "o", 0, 5);
  if (!r) co_return r.error();
  co_return *r == "bytes";
}
asio::awaitable<outcome> do_head(s3_world* w) {
  const auto r = co_await w->store.head("o");
  if (!r) co_return r.error();
  co_return r->has_value() && (*r)->size() == 5;
}
asio::awaitable<outcome> do_put(s3_world* w) {
  const auto r = co_await test::put_text(w->store, "put", "x", bw::put_condition());
  if (!r) co_return r.error();
  co_return r->applied();
}
asio::awaitable<outcome> do_create(s3_world* w) {
  const auto r = co_await test::put_text(w->store, "create", "x", bw::put_condition::if_absent());
  if (!r) co_return r.error();
  co_return r->applied();
}
asio::awaitable<outcome> do_list(s3_world* w) {
  const auto r = co_await w->store.list("o", "", 10);
  if (!r) co_return r.error();
  co_return r->objects().size() == 1;
}
asio::awaitable<outcome> do_remove(s3_world* w) {
  std::vector<std::string> keys{"gone"};
  const auto r = co_await w->store.remove(keys);
  if (!r) co_return r.error();
  co_return r->empty();
}
/// A store for which everything is large enough to go up in parts.
bw::s3_store in_parts(s3_world* w) {
  bw::s3_config c = w->config();
  c.multipart_threshold(1);
  return bw::s3_store(w->io.get_executor(), c);
}
asio::awaitable<outcome> do_upload(s3_world* w) {
  const auto r = co_await test::put_text(in_parts(w), "upload", "in parts", bw::put_condition());
  if (!r) co_return r.error();
  co_return r->applied() && w->server.object("upload") == "in parts" && w->server.uploads() == 0;
}
/// The part is refused, so that the upload must be aborted.
asio::awaitable<outcome> do_abort(s3_world* w) {
  auto refused = w->server.on("PART").reply(403, "AccessDenied");
  const bw::s3_store store = in_parts(w);
  const auto r = co_await test::put_text(store, "upload", "in parts", bw::put_condition());
  if (r) co_return false;
  if (store.client().failed_aborts() > 0) co_return bw::failure(bw::errc::store_unavailable, "the abort failed");
  co_return w->server.uploads() == 0;
}
asio::awaitable<outcome> do_bucket(s3_world* w) {
  auto r = co_await w->store.create_bucket();
  if (!r) co_return r.error();
  co_return true;
}
asio::awaitable<outcome> do_list_uploads(s3_world* w) {
  const auto r = co_await w->store.list_uploads("o");
  if (!r) co_return r.error();
  co_return r->empty();
}

struct operation {
  const char* name;
  asio::awaitable<outcome> (*run)(s3_world*);
  const char* request;  // the one that meets the fault
};
constexpr operation operations[] = {{"get", do_get, "GET"},
                                    {"head", do_head, "HEAD"},
                                    {"put", do_put, "PUT"},
                                    {"create", do_create, "PUT"},
                                    {"list", do_list, "LIST"},
                                    {"remove", do_remove, "DELETE_OBJECTS"},
                                    {"start of an upload", do_upload, "INITIATE"},
                                    {"part of an upload", do_upload, "PART"},
                                    {"completion of an upload", do_upload, "COMPLETE"},
                                    {"abort of an upload", do_abort, "ABORT"},
                                    {"list of uploads", do_list_uploads, "LIST_UPLOADS"},
                                    {"make bucket", do_bucket, "CREATE_BUCKET"}};

struct fault {
  const char* name;
  void (*script)(bw::testing::s3_rule&);
};
// Faults that pass by themselves: one retry is enough.
constexpr fault passing[] = {
    {"503 SlowDown", [](bw::testing::s3_rule& r) { r.reply(503, "SlowDown"); }},
    {"503 ServiceUnavailable", [](bw::testing::s3_rule& r) { r.reply(503, "ServiceUnavailable"); }},
    {"500 InternalError", [](bw::testing::s3_rule& r) { r.reply(500, "InternalError"); }},
    {"502 with HTML", [](bw::testing::s3_rule& r) {
       bw::testing::s3_reply page(502);
       page.header("Content-Type", "text/html").body("<html><body>Bad Gateway</body></html>");
       r.reply_with(page);
     }},
    {"504", [](bw::testing::s3_rule& r) { r.reply(504, "GatewayTimeout"); }},
    {"429", [](bw::testing::s3_rule& r) { r.reply(429, "TooManyRequests"); }},
    {"503 without a body", [](bw::testing::s3_rule& r) { r.reply_with(bw::testing::s3_reply(503)); }},
    {"408", [](bw::testing::s3_rule& r) { r.reply(408, "RequestTimeout"); }},
    {"400 RequestTimeout", [](bw::testing::s3_rule& r) { r.reply(400, "RequestTimeout"); }},
    {"409 OperationAborted", [](bw::testing::s3_rule& r) { r.reply(409, "OperationAborted"); }},
    {"dropped", [](bw::testing::s3_rule& r) { r.drop(); }},
    {"no answer", [](bw::testing::s3_rule& r) { r.stall_before_reply().reply(500, "InternalError"); }},
    {"closed after the answer", [](bw::testing::s3_rule& r) { r.close_after_reply(); }},
};
// Faults that stay: an error at once, no retry.
struct final_fault {
  int status;
  const char* code;
  bw::errc expect;
};
constexpr final_fault staying[] = {{403, "AccessDenied", bw::errc::access_denied},
                                   {403, "InvalidAccessKeyId", bw::errc::access_denied},
                                   {401, "Unauthorized", bw::errc::access_denied},
                                   {404, "NoSuchBucket", bw::errc::bucket_missing},
                                   {400, "InvalidArgument", bw::errc::rejected},
                                   {409, "ExistingObjectIsDirectory", bw::errc::rejected},
                                   {501, "NotImplemented", bw::errc::not_supported}};

}  // namespace

TEST_CASE("S3-19 S3-21 every operation survives every fault that passes") {
  for (const auto& op : operations) {
    for (const auto& f : passing) {
      const std::string name = std::string(op.name) + " / " + f.name;
      DYNAMIC_SECTION(name) {
        s3_world w(std::string(f.name) == "no answer" ? s3_world::hasty : s3_world::patient);
        w.server.put_object("o", "bytes");
        auto rule = w.server.on(op.request).nth(1);
        f.script(rule);
        auto body = [&]() -> asio::awaitable<void> {
          const outcome r = co_await op.run(&w);
          REQUIRE(test::good(r));
          CHECK(*r);
        };
        w.run(body());
        CHECK(rule.acted() == 1);
      }
    }
  }
}

TEST_CASE("CW-16 what each refusal means, and that it is not repeated") {
  for (const auto& op : operations) {
    for (const auto& f : staying) {
      // A bucket that is there already and within reach is what make bucket is for.
      if (f.status == 409 && std::string(op.request) == "CREATE_BUCKET") continue;
      const std::string name = std::string(op.name) + " / " + std::to_string(f.status) + " " + f.code;
      DYNAMIC_SECTION(name) {
        s3_world w;
        w.server.put_object("o", "bytes");
        w.server.on(op.request).reply(f.status, f.code);
        const bool head = std::string(op.request) == "HEAD";  // an answer without a body: the code is not known
        const bool abort = std::string(op.request) == "ABORT";  // best effort: it is only counted
        auto body = [&]() -> asio::awaitable<void> {
          const outcome r = co_await op.run(&w);
          if (head && f.status == 404) {
            REQUIRE(test::good(r));
            CHECK_FALSE(*r);
            co_return;
          }
          REQUIRE_FALSE(r.has_value());
          CAPTURE(r.error().what());
          if (abort) co_return;
          CHECK(r.error().status() == f.status);
          if (!head) CHECK(r.error().code() == f.expect);
          // The store has said that it did nothing.
          if (f.status != 409 && f.status < 500) CHECK(r.error().fate() == bw::fate::did_not_happen);
        };
        w.run(body());
        CHECK(w.server.count(op.request) <= (head && (f.status == 400 || f.status == 409) ? 2u : 1u));
      }
    }
  }
}

TEST_CASE("S3-20 endless SlowDown ends, and says so") {
  for (const auto& op : operations) {
    DYNAMIC_SECTION(op.name) {
      s3_world w;
      w.server.on(op.request).reply(503, "SlowDown");
      const bool abort = std::string(op.request) == "ABORT";
      auto body = [&]() -> asio::awaitable<void> {
        const outcome r = co_await op.run(&w);
        REQUIRE_FALSE(r.has_value());
        CAPTURE(r.error().what());
        CHECK(r.error().kind() == bw::error_kind::retry_later);
        if (!abort) CHECK(r.error().status() == 503);
      };
      w.run(body());
      CHECK(w.server.count(op.request) == w.attempts);
    }
  }
}
