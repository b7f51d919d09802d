// One half of a program that includes every public header in two units.
#include "all_headers.hpp"

const char* version_seen_by_b();

int main() { return std::string_view(version_seen_by_b()) == BATCHWEAVE_VERSION ? 0 : 1; }
