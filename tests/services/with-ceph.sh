#!/bin/bash
# Runs a command with a Ceph S3 gateway of its own on loopback, and stops it afterwards whatever happened. Needs root.
# usage: with-ceph.sh COMMAND [ARGUMENT ...]      exit status: the command's
# The command sees BATCHWEAVE_TEST_S3=s3://bw-test/run-PID?endpoint=http://127.0.0.1:PORT, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION.
# environment: BATCHWEAVE_CEPH_PORT (default 18480; the 60 above it are used too), BATCHWEAVE_CEPH_DIR (default: a new temporary folder)
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
PORT=${BATCHWEAVE_CEPH_PORT:-18480}
DIR=${BATCHWEAVE_CEPH_DIR:-}; OWN=
[ -n "$DIR" ] || { DIR=$(mktemp -d /tmp/batchweave-ceph.XXXXXX); OWN=1; }
export AWS_ACCESS_KEY_ID=testkey AWS_SECRET_ACCESS_KEY=testsecret AWS_REGION=us-east-1
export S3_ACCESS_KEY=$AWS_ACCESS_KEY_ID S3_SECRET_KEY=$AWS_SECRET_ACCESS_KEY
end() { bash "$HERE/ceph.sh" "$PORT" "$DIR" stop >/dev/null 2>&1 || :; [ -z "$OWN" ] || rm -rf "$DIR"; }
trap end EXIT; trap 'exit 130' INT; trap 'exit 143' TERM
if (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then echo "with-ceph: port $PORT is taken; set BATCHWEAVE_CEPH_PORT" >&2; exit 1; fi
echo "with-ceph: starting Ceph on port $PORT (log: $DIR/log)"
bash "$HERE/ceph.sh" "$PORT" "$DIR" start || { tail -n 5 "$DIR"/apt.log "$DIR"/log/*.err "$DIR"/log/*.out 2>/dev/null || :; echo "with-ceph: Ceph did not start" >&2; exit 1; }
python3 "$HERE/make-bucket.py" "http://127.0.0.1:$PORT" bw-test
export BATCHWEAVE_TEST_S3="s3://bw-test/run-$$?endpoint=http://127.0.0.1:$PORT"
"$@"
