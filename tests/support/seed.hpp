// The seed of this run: --rng-seed on the command line reproduces a failure.
#pragma once

#include "support/catch.hpp"

#include <cstdint>

namespace test {
inline std::uint64_t seed() {
#if CATCH_VERSION_MAJOR >= 3
  return Catch::getSeed();
#else
  return Catch::rngSeed();
#endif
}
}  // namespace test
