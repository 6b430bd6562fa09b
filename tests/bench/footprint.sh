#!/bin/bash
# footprint.sh: what a server costs that nobody calls: time from start to ready, memory, CPU.
#
# usage: tests/bench/footprint.sh [MODEL_DIR]
#   MODEL_DIR   default build/real_model/all-MiniLM-L6-v2, the MiniLM-L6 that tests/real_model.sh fetches
#
# Needs build/release/bin/encoderd. Bounds: ready in 3 s, RSS of 1.3 × weights + 150 MB, 1 % of a core.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

model=${1:-build/real_model/all-MiniLM-L6-v2}
[[ -f $model/config.json ]] || { echo "footprint.sh: no model in $model; run tests/real_model.sh first" >&2; exit 64; }
log=$(mktemp)
server=''
trap '[[ -z $server ]] || kill -KILL "$server" 2>/dev/null || true; rm -f "$log"' EXIT

now_ms() { echo $(($(date +%s%N) / 1000000)); }
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }
field() { sed -n "s/.* $1=\([0-9]*\).*/\1/p" "$log" | head -n 1; }

deploy/debian13.sh true  # the build environment is not part of the start
start=$(now_ms)
deploy/debian13.sh build/release/bin/encoderd --model_dir="$model" --listen=127.0.0.1:0 \
  --metrics_listen=127.0.0.1:0 2>"$log" &
server=$!
until grep -q ' Serving\. ' "$log"; do
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
  (($(now_ms) - start < 60000)) || { echo 'footprint.sh: not ready after 60 s' >&2; exit 1; }
  sleep 0.01
done
ready=$(($(now_ms) - start))
rss=$(awk '/VmRSS/ { print int($2 / 1024) }' "/proc/$server/status")
weights=$(($(field weights_bytes) / 1048576))
seconds=10
before=$(cpu_ticks)
sleep $seconds
idle=$(awk -v ticks=$(($(cpu_ticks) - before)) -v hz="$(getconf CLK_TCK)" -v s=$seconds \
  'BEGIN { printf "%.2f", 100 * ticks / hz / s }')
kill -TERM "$server"
wait "$server"
server=''

printf 'start to ready   %s ms (bound 3000)\n' "$ready"
printf 'RSS              %s MiB (bound %s: 1.3 x %s MiB of weights + 143)\n' \
  "$rss" $((weights * 13 / 10 + 143)) "$weights"
printf 'idle CPU         %s %% of a core over %s s (bound 1)\n' "$idle" "$seconds"
