#!/bin/bash
# Runs COMMAND ... with the URL in BATCHWEAVE_TEST_S3 as its last argument; exit status 77 (skipped) when there is none.
[ -n "${BATCHWEAVE_TEST_S3:-}" ] || { echo "skipped: BATCHWEAVE_TEST_S3 names no store"; exit 77; }
exec "$@" "$BATCHWEAVE_TEST_S3"
