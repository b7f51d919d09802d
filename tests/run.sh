#!/bin/bash
# Installs what is missing, builds one preset, starts Ceph, runs all tests, stops Ceph. The last lines are ctest's summary.
# usage: bash tests/run.sh [release|clang|asan|tsan] [--no-ceph] [--more-stores] [--no-install] [CTEST-ARGUMENT ...]
# --more-stores: the integration tests against versitygw too, and a table of what each store can do; builds them with Go, some minutes.
# Debian 12 and 13 and Ubuntu as root or with sudo; elsewhere it says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
PRESET=release; CEPH=1; INSTALL=1; MORE=
while [ $# -gt 0 ]; do
  case $1 in
    release|clang|asan|tsan) PRESET=$1;;
    --no-ceph) CEPH=;;
    --more-stores) MORE=1;;
    --no-install) INSTALL=;;
    *) break;;
  esac; shift
done
. cmake/host.sh
if [ -n "$INSTALL" ]; then
  host_install build tests
  [ "$PRESET" != clang ] || host_install clang
fi
JOBS=$(host_jobs)
cmake --preset "$PRESET"
cmake --build "build/$PRESET" -j "$JOBS"
RUN=()
case $PRESET in asan|tsan) if ! host_sanitizer_starts "$PRESET"; then
    # Some kernels place programs where the sanitizers want their shadow memory.
    if host_sanitizer_starts "$PRESET" setarch -R; then RUN=(setarch -R); else echo "tests/run.sh: a program with the $PRESET sanitizers does not start here" >&2; exit 1; fi
  fi;;
esac
WITH=()
if [ -n "$CEPH" ] && [ -z "${BATCHWEAVE_TEST_S3:-}" ]; then
  if [ "$(id -u)" = 0 ]; then WITH=(bash tests/services/with-ceph.sh)
  else echo "tests/run.sh: not root, so no Ceph: tests against a real store skip (or set BATCHWEAVE_TEST_S3)"; fi
fi
# A second, stricter store first: over plain files, two gateways. Then what each can do, as a table. A store that cannot be installed
# here (status 3) is said so and is no failure of the library.
if [ -n "$MORE" ] && [ ${#WITH[@]} -gt 0 ]; then
  status=0; bash tests/services/with-store.sh versitygw ctest --preset "$PRESET" -L integration || status=$?
  case $status in 0) ;; 3) echo "tests/run.sh: NOT RUN: the tests against versitygw";; *) exit "$status";; esac
  bash tests/services/matrix.sh "build/$PRESET/examples/probe" ceph versitygw gofakes3
fi
"${WITH[@]}" "${RUN[@]}" ctest --preset "$PRESET" -j "$JOBS" "$@"
