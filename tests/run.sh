#!/bin/bash
# Builds everything and runs the default set of tests; the last words are ctest's own summary.
#
# usage: tests/run.sh [PRESET] [CTEST_ARGUMENT]...
#   PRESET           of CMakePresets.json: release (default), dev, asan, tsan
#   CTEST_ARGUMENT   e.g. -R Safetensors, -L parity, --repeat until-fail:10
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

preset=release
if (($#)) && [[ $1 != -* ]]; then
  preset=$1
  shift
fi

run=(deploy/debian13.sh --with test)
"${run[@]}" cmake --preset "$preset" -DENCODERD_BUILD_TESTS=ON -DENCODERD_BUILD_BENCHMARKS=ON
"${run[@]}" cmake --build --preset "$preset" --parallel "$(nproc)"
exec "${run[@]}" ctest --preset "$preset" "$@"
