#!/bin/bash
# Installs what is missing, builds the quickstart and runs it.
# usage: bash examples/run.sh [quickstart arguments; --help shows them]
set -euo pipefail
HERE=$(cd "$(dirname "$0")/.." && pwd)
. "$HERE/cmake/host.sh"
host_install build
# A build folder of its own: no tests, so no Catch2 is needed.
cmake -S "$HERE" --preset release -B "$HERE/build/quickstart" -DBATCHWEAVE_TESTS=OFF -DBATCHWEAVE_BENCH=OFF --log-level=WARNING >/dev/null
cmake --build "$HERE/build/quickstart" -j "$(host_jobs)" --target quickstart
exec "$HERE/build/quickstart/examples/quickstart" "$@"
