#!/bin/bash
# run.sh: how the server behaves under load, as ratios with their floors and aims.
#
# usage: tests/load/run.sh [--quick] [--only=KEY[,KEY]...]
#   --quick   short runs, one round: rough figures in a few minutes
#   --only    of the measurements that --help lists
#
# Builds `release` first. Takes up to 20 minutes on a machine that does nothing else. Exit code 1
# when a figure is BELOW its floor, 64 for an argument that it does not know.
set -euo pipefail
exec "$(dirname -- "${BASH_SOURCE[0]}")/../run_program.sh" load_bench "$@"
