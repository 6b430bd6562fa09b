#!/bin/bash
# soak.sh: servers under load for minutes, with clients that are many, slow, rude or gone.
#
# usage: tests/soak.sh [--minutes=10] [--only=PHASE[,PHASE]...]
#   --minutes   how long it takes, 1 to 600; every phase shrinks and grows with it
#   --only      of the phases that --help lists
#
# Builds `release` first. Prints every check with what was expected and found. Exit code 1 when one
# fails, or when anything hangs, 64 for an argument that it does not know.
set -euo pipefail
exec "$(dirname -- "${BASH_SOURCE[0]}")/run_program.sh" soak "$@"
