#!/bin/bash
# quickstart.sh: from a fresh clone to an answer. Builds the server and its client, serves the
# bundled model (it reverses 16 digits), asks it, draws what it looked at, reads its metrics, and
# stops it. Takes no arguments; nothing is left running, and all that it writes is below build/.
# Each step runs by debian13.sh, whose command has the process id of the script: so the server is
# this script's own child, and gets its signals.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

run=deploy/debian13.sh
bin=build/release/bin
out=build/quickstart
digits=3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3
server=''

step() { printf '\n\033[1m== %s\033[0m (%d s)\n' "$1" "$SECONDS"; }

# Says what went wrong, with the last words of the server.
die() {
  printf 'quickstart.sh: %s\n' "$*" >&2
  [[ ! -s $out/encoderd.log ]] || tail -n 20 "$out/encoderd.log" >&2
  exit 1
}

stop_what_is_left() { [[ -z $server ]] || kill -KILL "$server" 2>/dev/null || true; }
trap stop_what_is_left EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

build() {
  step "Preparing the build environment"
  "$run" true
  step "Configuring"
  "$run" cmake --preset release -DENCODERD_BUILD_TESTS=OFF -DENCODERD_BUILD_BENCHMARKS=OFF
  step "Building the server and its client"
  "$run" cmake --build --preset release --parallel "$(nproc)" --target encoderd encoderctl
}

# port NAME: the free port that the server took, from the line in its log that names it.
port() { sed -n "s/.* Listening\..* $1=\([0-9]*\) .*/\1/p" "$out/encoderd.log"; }

start() {
  local give_up=$((SECONDS + 60))
  step "Starting encoderd on free ports with the bundled model"
  mkdir -p "$out"
  "$run" "$bin/encoderd" --model_dir=deploy/models/reverse \
    --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 >"$out/encoderd.log" 2>&1 &
  server=$!
  until [[ -n $(port port) ]] &&
    "$run" "$bin/encoderctl" health --address="127.0.0.1:$(port port)" --wait=1s; do
    kill -0 "$server" 2>/dev/null || die "the server ended before it served"
    ((SECONDS < give_up)) || die "the server does not serve after 60 s"
    sleep 0.1
  done
  address=127.0.0.1:$(port port)
  cat "$out/encoderd.log"
}

# The likeliest digit of each row of logits [16, 10], from the JSON answer on standard input.
digits_of() {
  sed -n 's/.*"logits":{"data":\[\([^]]*\)\].*/\1/p' | tr ',' '\n' |
    awk '(NR - 1) % 10 == 0 || $1 > best { best = $1; digit = (NR - 1) % 10 }
      NR % 10 == 0 { printf "%s%d", separator, digit; separator = "," }'
}

ask() {
  local call=("$run" "$bin/encoderctl" encode "$digits" --one_hot=10 --address="$address")
  local answer expected
  step "Sending 16 digits"
  "${call[@]}" --logits --last_hidden_state --values=10
  answer=$("${call[@]}" --logits --json | digits_of)
  expected=$(tr ',' '\n' <<<"$digits" | tac | paste -sd,)
  printf '\nsent      %s\nanswered  %s\n' "$digits" "$answer"
  [[ $answer == "$expected" ]] || die "expected the digits in reverse order: $expected"
}

draw() {
  step "Drawing what each position looked at"
  "$run" "$bin/encoderctl" attention "$digits" --one_hot=10 --address="$address" \
    --output="$out/attention.png"
  echo "The bright anti-diagonal of $PWD/$out/attention.png is the reversal."
}

scrape() {
  local url
  url=http://127.0.0.1:$(port metrics_port)/metrics
  step "Reading $url"
  "$run" curl -fsS --max-time 10 "$url" >"$out/metrics.txt"
  # What was answered, how long it took, and who answered.
  grep -E '^encoderd_(ready|calls_total|call_seconds_(sum|count)|sequences_total|tokens_total|'`
    `'worker_busy_seconds_total|build_info|model_info)' "$out/metrics.txt" | grep -v ' 0$'
}

stop() {
  local started=$SECONDS status=0
  step "Stopping the server with SIGTERM"
  kill -TERM "$server"
  wait "$server" || status=$?
  server=''
  ((status == 0)) || die "the server ended with exit code $status, expected 0"
  grep -q 'Ended: every accepted call was answered' "$out/encoderd.log" ||
    die "the server did not say that it drained"
  tail -n 2 "$out/encoderd.log"
  echo "It drained and exited with 0 after $((SECONDS - started)) s."
}

build
start
ask
draw
scrape
stop
step "Done"
