#!/bin/bash
# run_program.sh: builds a program of `release`, and the server beside it, and runs it.
#
# usage: tests/run_program.sh PROGRAM [ARGUMENT]...
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

program=$1
shift
run=(deploy/debian13.sh --with test)
"${run[@]}" cmake --preset release -DENCODERD_BUILD_TESTS=ON -DENCODERD_BUILD_BENCHMARKS=ON \
  >/dev/null
"${run[@]}" cmake --build --preset release --parallel "$(nproc)" --target "$program" encoderd >&2
exec "${run[@]}" "build/release/bin/$program" "$@"
