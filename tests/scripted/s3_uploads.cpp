// S3-07: multipart uploads that nobody finished are found and aborted by reclaim, over the test server.
#include "support/s3_world.hpp"

#include <batchweave/commit/every.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/reclaim.hpp>
#include <batchweave/store/any_store.hpp>
#include <batchweave/stream.hpp>

#include <set>

namespace bw = batchweave;
namespace m = batchweave::manifest;
namespace asio = boost::asio;

namespace {

// Begins an upload of `key` and leaves it: its parts and its abort are refused.
asio::awaitable<void> leave_an_upload(bw::s3_store store, std::string key) {
  const std::string bytes = test::pattern(6u << 20);
  const bw::result<bw::put_outcome> put = co_await test::put_text(store, std::move(key), bytes, bw::put_condition());
  CHECK_FALSE(put.has_value());
}

bw::producer_options quick() {
  static std::uint64_t seed = 0;
  bw::producer_options o("p");
  o.seed(++seed);
  return o;
}

}  // namespace

TEST_CASE("S3-07 uploads of a fenced incarnation are aborted, those of a current one and of others are left alone") {
  test::s3_world w;
  bw::s3_config config = w.config();
  config.prefix("a b&c").part_size(5u << 20).multipart_threshold(5u << 20);
  bw::s3_store store(w.io.get_executor(), config);
  config.prefix("elsewhere");
  bw::s3_store other(w.io.get_executor(), config);
  w.run([](test::s3_world& world, bw::s3_store s, bw::s3_store foreign) -> asio::awaitable<void> {
    const bw::stream_options options;
    co_await bw::create_stream(s, options);
    auto first = co_await bw::open_producer(s, quick(), bw::commit::every<1>());
    auto second = co_await bw::open_producer(s, quick(), bw::commit::every<1>());
    CHECK(second.epoch() == 2);
    world.server.on("PART").reply(403, "AccessDenied");
    world.server.on("ABORT").times(4).reply(403, "AccessDenied");
    co_await leave_an_upload(s, m::tgb_key("p", 1, 0));
    co_await leave_an_upload(s, m::tgb_key("p", 2, 0));
    co_await leave_an_upload(s, "tgb/not-ours");
    co_await leave_an_upload(foreign, m::tgb_key("p", 1, 0));
    REQUIRE(world.server.uploads() == 4);
    const bw::reclaim_options reclaiming;
    const bw::any_store erased(s);  // the capability survives type erasure
    const bw::reclaim_report r = co_await bw::reclaim(erased, reclaiming);
    CHECK(r.uploads == 1);
    CHECK(r.failed_keys == 0);
    const std::string prefix = "tgb/";
    const bw::result<std::vector<bw::open_upload>> left = co_await s.list_uploads(prefix);
    REQUIRE(left.has_value());
    std::set<std::string> keys;
    for (const bw::open_upload& u : *left) keys.insert(u.key);
    std::set<std::string> wanted;
    wanted.insert(m::tgb_key("p", 2, 0));
    wanted.insert("tgb/not-ours");
    CHECK(keys == wanted);
    CHECK(world.server.uploads() == 3);

    world.server.on("LIST_UPLOADS").times(1).reply(501, "NotImplemented");
    const bw::reclaim_report without = co_await bw::reclaim(erased, reclaiming);  // a server that cannot tell is no failure
    CHECK(without.failed_keys == 0);
  }(w, store, other));
}
