#!/bin/bash
# Runs a command with a Ceph S3 gateway of its own on loopback: with-store.sh ceph. Needs root.
# usage: with-ceph.sh COMMAND [ARGUMENT ...]      exit status: the command's
exec bash "$(dirname "$0")/with-store.sh" ceph "$@"
