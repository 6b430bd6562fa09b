#!/bin/sh
# run.sh: one of the recipes of this folder, or ghz, against a server that runs.
#
# usage: deploy/load/run.sh capacity|soak|spike|overload [ENCODERCTL_FLAG]...
#        deploy/load/run.sh ghz [GHZ_FLAG]...
#
#   deploy/load/run.sh capacity --address=10.0.0.1:50051
#   deploy/load/run.sh soak --duration=5m --lengths=short     # later flags hold
#   ADDRESS=10.0.0.1:50051 deploy/load/run.sh ghz --duration=30s
#
# ENCODERCTL, GHZ: the programs, if they are not on the PATH or in build/release/bin.
# README.md beside this says how to read what comes out.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
PATH=$PATH:$here/../../build/release/bin

recipe=${1-}
if [ -f "$here/$recipe.flags" ]; then
  shift
  exec "${ENCODERCTL:-encoderctl}" load "--flagfile=$here/$recipe.flags" "$@"
fi
if [ "$recipe" = ghz ]; then
  shift
  exec "${GHZ:-ghz}" --config="$here/ghz.json" "$@" "${ADDRESS:-127.0.0.1:50051}"
fi
sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
[ "$recipe" = --help ] || exit 64
