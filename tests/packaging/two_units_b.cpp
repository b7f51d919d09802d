// The other half.
#include "all_headers.hpp"

const char* version_seen_by_b();
const char* version_seen_by_b() { return BATCHWEAVE_VERSION; }
