// Time as a value: the durations and time points that pure code is told.
#pragma once

#include <chrono>

namespace batchweave {

using duration = std::chrono::nanoseconds;
/// Monotonic (boot) time; only differences mean something.
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;
using wall_time = std::chrono::sys_time<std::chrono::nanoseconds>;

}  // namespace batchweave
