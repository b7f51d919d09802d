#!/bin/bash
# Fuzzes every target, or those named, for a number of seconds each, one after the other; new inputs go to build/fuzz/found/NAME.
# usage: bash tests/fuzz/run.sh SECONDS [NAME ...]     builds with the preset "fuzz" (clang, libFuzzer, address and undefined behaviour)
set -euo pipefail
cd "$(dirname "$0")/../.."
SECONDS_EACH=${1:?seconds}; shift
. cmake/host.sh
host_install build tests clang
[ -n "${BATCHWEAVE_FUZZ_BUILT:-}" ] || { cmake --preset fuzz; cmake --build build/fuzz -j "$(host_jobs)" --target fuzz_targets; }
[ $# -gt 0 ] || set -- $(cd tests/fuzz; ls *.cpp | sed 's/\.cpp$//' | grep -v '^replay$')
for name; do
  mkdir -p "build/fuzz/found/$name"
  echo "== $name"
  log=build/fuzz/found/$name.log
  "build/fuzz/tests/fuzz.$name" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$name-" \
    "build/fuzz/found/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || { tail -n 40 "$log"; echo "fuzz: $name has a finding" >&2; exit 1; }
  grep -E 'cov:' "$log" | tail -n 1; grep -E 'number_of_executed_units|average_exec_per_sec|peak_rss' "$log"
done
