// The trainer role: one rank reads its slices in order, trains, and checkpoints the model together with the stream cursor.
#pragma once

#include "checkpoint.hpp"
#include "options.hpp"
#include "packing.hpp"
#include "report.hpp"

#include <batchweave/consumer.hpp>
#include <batchweave/store/any_store.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace quickstart {

namespace bw = batchweave;
namespace asio = boost::asio;

inline void train_on(const bw::slice& slice, checkpoint& to) {
  if (slice.step() != to.steps) {
    throw std::runtime_error("step " + std::to_string(slice.step()) + " came where step " + std::to_string(to.steps) + " was due");
  }
  for (std::size_t i = 0; i < slice.parts(); ++i) {
    const token_run tokens(slice.part(i));
    to.model.train(tokens.text());
    to.seen.add(tokens.offset(), tokens.offset() + tokens.tokens());
  }
  to.samples += slice.samples();
  ++to.steps;
}

inline asio::awaitable<void> train(bw::any_store store, options o, std::uint32_t rank, std::filesystem::path checkpoint_file,
                                   std::filesystem::path figures_file) {
  checkpoint state;
  bw::consumer_options settings("quickstart");
  settings.rank(rank).world_size(o.ranks).poll_interval(std::chrono::milliseconds(50)).give_up_after(std::chrono::seconds(o.timeout));
  if (std::optional<checkpoint> saved = checkpoint::load(checkpoint_file)) {
    state = std::move(*saved);
    ++state.resumed;
    settings.start(bw::cursor::parse(state.cursor).value());
  } else {
    settings.start_at(0);
  }
  auto consumer = co_await bw::open_consumer(store, settings);

  figures progress;
  pace writing;
  while (std::optional<bw::slice> slice = co_await consumer.next()) {
    train_on(*slice, state);
    state.cursor = consumer.cursor().to_string();
    if (state.steps % o.checkpoint == 0) state.save(checkpoint_file);
    writing.maybe([&] {
      progress.steps = state.steps;
      progress.save(figures_file);
    });
  }
  state.cursor = consumer.cursor().to_string();
  state.save(checkpoint_file);
  progress.steps = state.steps;
  progress.save(figures_file);
}

}  // namespace quickstart
