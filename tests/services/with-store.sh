#!/bin/bash
# Runs a command with an S3 store of its own on loopback, and stops it afterwards whatever happened.
# usage: with-store.sh STORE COMMAND [ARGUMENT ...]      exit status: the command's, 3 when the store did not start
#   STORE: ceph (needs root), versitygw, seaweedfs, gofakes3, moto, s3mock, s3rver: the script of that name in this folder
# The command sees BATCHWEAVE_TEST_S3=s3://bw-test/run-PID?endpoint=http://127.0.0.1:PORT, BATCHWEAVE_TEST_S3_KIND=STORE,
# AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and, where the store has a second gateway, BATCHWEAVE_TEST_S3_SECOND.
# environment: BATCHWEAVE_STORE_PORT (default 18480; the 60 above it are used too), BATCHWEAVE_STORE_DIR (default: a new temporary folder)
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
STORE=${1:?store}; shift
[ -x "$HERE/$STORE.sh" ] || [ -f "$HERE/$STORE.sh" ] || { echo "with-store: there is no store '$STORE' in $HERE" >&2; exit 2; }
PORT=${BATCHWEAVE_STORE_PORT:-18480}
DIR=${BATCHWEAVE_STORE_DIR:-}; OWN=
[ -n "$DIR" ] || { DIR=$(mktemp -d "/tmp/batchweave-$STORE.XXXXXX"); OWN=1; }
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
export S3_ACCESS_KEY=$AWS_ACCESS_KEY_ID S3_SECRET_KEY=$AWS_SECRET_ACCESS_KEY
export CEPH_RGWS=${CEPH_RGWS:-2} VERSITY_GATEWAYS=${VERSITY_GATEWAYS:-2} SEAWEED_S3S=${SEAWEED_S3S:-2}
case $STORE in ceph) GATEWAYS=$CEPH_RGWS;; versitygw) GATEWAYS=$VERSITY_GATEWAYS;; seaweedfs) GATEWAYS=$SEAWEED_S3S;; *) GATEWAYS=1;; esac
end() { bash "$HERE/$STORE.sh" "$PORT" "$DIR" stop >/dev/null 2>&1 || :; [ -z "$OWN" ] || rm -rf "$DIR"; }
trap end EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
if (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then echo "with-store: port $PORT is taken; set BATCHWEAVE_STORE_PORT" >&2; exit 1; fi
echo "with-store: starting $STORE on port $PORT (log: $DIR/log)"
bash "$HERE/$STORE.sh" "$PORT" "$DIR" start || {
  tail -n 5 "$DIR"/apt.log "$DIR"/log/* 2>/dev/null || :; echo "with-store: $STORE did not start" >&2; exit 3; }
python3 "$HERE/make-bucket.py" "http://127.0.0.1:$PORT" bw-test
export BATCHWEAVE_TEST_S3_KIND=$STORE BATCHWEAVE_TEST_S3="s3://bw-test/run-$$?endpoint=http://127.0.0.1:$PORT"
[ "$GATEWAYS" -lt 2 ] || export BATCHWEAVE_TEST_S3_SECOND="s3://bw-test/run-$$?endpoint=http://127.0.0.1:$((PORT + 50))"
"$@"
