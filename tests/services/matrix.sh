#!/bin/bash
# Starts one store after the other, asks examples/probe what it can do, and prints the table store x capability.
# usage: matrix.sh PROBE-PROGRAM [STORE ...]      default: ceph versitygw gofakes3 moto s3mock s3rver; by hand also: seaweedfs (long to build)
# A store whose script cannot install it here is left out, by name. Exit status 1: a store did not get the verdict of its row below.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
PROBE=${1:?the probe program}; shift
[ $# -gt 0 ] || set -- ceph versitygw gofakes3 moto s3mock s3rver
ROWS=$(mktemp); DETAILS=$(mktemp); ONE=$(mktemp); trap 'rm -f "$ROWS" "$DETAILS" "$ONE"' EXIT
expected() { case $1 in s3mock|s3rver|moto) echo REFUSED;; *) echo accepted;; esac; }
export PROBE
wrong=0
for store; do
  row='name=$BATCHWEAVE_TEST_S3_KIND; urls=$BATCHWEAVE_TEST_S3
    [ -z "${BATCHWEAVE_TEST_S3_SECOND:-}" ] || { urls=$urls,$BATCHWEAVE_TEST_S3_SECOND; name="$name, 2 gateways"; }
    "$PROBE" --row "$name" "$urls"'
  bash "$HERE/with-store.sh" "$store" bash -c "$row" >"$ONE" 2>"$ONE.err"
  if ! grep -h '^|' "$ONE" >>"$ROWS"; then
    { echo "$store: no row"; tail -n 3 "$ONE" "$ONE.err"; } >>"$DETAILS"
    case $(cat "$ONE" "$ONE.err") in *'no Go here'*|*'no Maven'*|*'build failed'*|*'install failed'*) ;; *) wrong=1;; esac
  elif ! grep -q "| $(expected "$store") " "$ONE"; then
    echo "$store: the verdict should be: $(expected "$store")" >>"$DETAILS"; wrong=1
  fi
  { echo "$store:"; cat "$ONE.err"; } >>"$DETAILS"; rm -f "$ONE.err"
done
"$PROBE" --header; cat "$ROWS"; echo; cat "$DETAILS"
exit $wrong
