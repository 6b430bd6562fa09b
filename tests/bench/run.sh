#!/bin/bash
# run.sh: this engine beside the limits of the machine and beside its peers, as one report.
#
# usage: tests/bench/run.sh [--quick] [--only=KEY[,KEY]...]
#   --quick   one short round of the ratios that have floors, peers in fewer settings: rough figures in
#             about five minutes
#   --only    of the measurements that --help lists
#
# Builds `release`, fetches the peers from PyPI into build/bench/venv and real MiniLM-L6 weights into
# build/real_model; whatever cannot be had is told in the report, which goes on without it. Takes up to
# 28 minutes, and some minutes more the first time, on a machine that does nothing else. The report is
# printed; build/bench has it as report.json and bars.png. Exit code 1 when a figure is BELOW its
# floor, 64 for an argument that it does not know.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

run=(deploy/debian13.sh --with test --with oracle)
venv=build/bench/venv
"${run[@]}" cmake --preset release -DENCODERD_BUILD_TESTS=ON -DENCODERD_BUILD_BENCHMARKS=ON \
  >/dev/null
"${run[@]}" cmake --build --preset release --parallel "$(nproc)" --target engine_bench >&2
if [[ ! -e $venv/ready || tests/bench/requirements.txt -nt $venv/ready ]]; then
  echo 'run.sh: fetching the peers' >&2
  "${run[@]}" python3 -m venv --system-site-packages "$venv"
  all=1
  while read -r requirement; do  # one by one: a peer that cannot be had takes no other with it
    "${run[@]}" "$venv/bin/pip" install --quiet --no-warn-conflicts "$requirement" </dev/null >&2 || {
      echo "run.sh: $requirement could not be installed" >&2
      all=0
    }
  done < <(sed '/^#/d; /^$/d' tests/bench/requirements.txt)
  ((all == 0)) || touch "$venv/ready"  # else they are tried again next time
fi
tests/real/fetch_model.sh all-MiniLM-L6-v2 >&2 ||
  echo 'run.sh: no real weights: MiniLM-L6 has random ones' >&2
exec "${run[@]}" build/release/bin/engine_bench "$@"
