// Why a role waits, in a form that a program and a person can read.
#pragma once

#include <batchweave/aio/clock.hpp>
#include <batchweave/base/error.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace batchweave {

enum class wait_reason {
  nothing,           ///< does not wait
  step_not_visible,  ///< consumer: the step is not committed yet
  fetching,          ///< consumer: the step is being read
  memory_budget,     ///< no room in the budget
  back_pressure,     ///< producer: too far ahead of the slowest group
  turn_of_another,   ///< producer: round_robin, the next step is somebody else's
  uploading,         ///< producer: bytes are on their way
  committing,        ///< producer: uploaded, waits for its commit
  store_failing,     ///< the store is down, or asks to slow down, and is asked again
};

inline constexpr std::string_view to_string(wait_reason r) noexcept {
  constexpr std::string_view names[] = {"nothing",       "step_not_visible", "fetching",  "memory_budget", "back_pressure",
                                        "turn_of_another", "uploading",      "committing", "store_failing"};
  return names[static_cast<std::size_t>(r)];
}

/// One wait as it is now.
class wait_state {
 public:
  wait_state() = default;
  wait_state(wait_reason why, std::string text) : why_(why), text_(std::move(text)) {}
  wait_reason reason() const noexcept { return why_; }
  /// Names who waits, for what, and since when; empty when nothing waits.
  const std::string& text() const noexcept { return text_; }

 private:
  wait_reason why_ = wait_reason::nothing;
  std::string text_;
};

/// Called with every wait that passes its bound, again after each further bound, from the coroutine that waits; must not throw or block.
using wait_listener = std::function<void(const wait_state&)>;

/// Tells a listener of a store that keeps failing while a role opens: once that has lasted `bound`, and again after each further one.
class store_trouble {
 public:
  store_trouble(wait_listener f, duration bound, any_clock clock, std::string who)
      : listener_(std::move(f)), bound_(bound), clock_(std::move(clock)), who_(std::move(who)) {}
  /// Null: it works again.
  void operator()(const failure* f) {
    if (!f) {
      told_.reset();
      return;
    }
    if (!told_) told_ = clock_.now();
    if (!listener_ || clock_.now() < *told_ + bound_) return;
    told_ = clock_.now();
    listener_(wait_state(wait_reason::store_failing, who_ + ": " + f->what()));
  }

 private:
  wait_listener listener_;
  duration bound_;
  any_clock clock_;
  std::string who_;
  std::optional<time_point> told_;
};

}  // namespace batchweave
