# shellcheck shell=bash disable=SC2154
# stop_checks.sh: how the server ends by signals, and comes back. Sourced by image.sh.

drain_seconds=20 # --drain_timeout

# check_end WHAT NAME BOUND_MS EXIT_CODE SIGNAL...: signals a container, looks, removes it.
check_end() {
  local what=$1 name=$2 bound=$3 expected=$4 code took
  shift 4
  read -r code took < <(signal "$name" "$@")
  check "$what" "exit code $code after $took ms" "$expected, at most $bound ms" \
    eval "is $code $expected && at_most $took $bound"
  remove "$name"
}

check_stop() {
  local stop
  for stop in TERM INT; do
    start idle "$(model_at "$PWD/$reverse_model")"
    serves idle
    check_end "SIG$stop, idle" idle 2000 0 "$stop"
  done
  check_podman_stop
  check_stop_busy
  check_stop_early
  start twice "$(model_at "$PWD/$reverse_model")" -- --plaintext --drain_delay=60s
  serves twice
  kill -s TERM "$(pid_of twice)"
  await_line twice ' Draining. '
  check_end 'a second SIGTERM while it drains' twice 2000 143 TERM
  check_restart
}

# What `docker stop` does, its own time included.
check_podman_stop() {
  local begun code took
  start stopped "$(model_at "$PWD/$reverse_model")"
  serves stopped
  begun=$(now_ms)
  engine stop --time 10 "$prefix-stopped" >/dev/null
  took=$(($(now_ms) - begun))
  code=$(inspect stopped '{{.State.ExitCode}}')
  check 'podman stop, idle' "exit code $code after $took ms" '0, at most 2000 ms' \
    eval "is $code 0 && at_most $took 2000"
  remove stopped
}

# CPU time of a process, in hundredths of a second.
cpu_time() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# Calls under way are answered, and that is what the end waits for.
check_stop_busy() {
  local pid caller code took idle answer=$work/answer
  # 64 sequences of 512 tokens: seconds of work.
  for _ in $(seq 64); do seq -s, 1000 1511; done >"$work/ids.txt"
  start busy "$(model_at "$model")"
  serves busy
  pid=$(pid_of busy)
  idle=$(cpu_time "$pid")
  client busy encode --input="$work/ids.txt" --pooled=default --timeout=60s >"$answer" 2>&1 &
  caller=$!
  until (($(cpu_time "$pid") > idle + 30)); do sleep 0.01; done
  read -r code took < <(signal busy TERM)
  wait "$caller" || true
  check 'SIGTERM, busy: exit' "exit code $code after $took ms" \
    "0, at most ${drain_seconds}000 ms" eval "is $code 0 && at_most $took ${drain_seconds}000"
  check 'SIGTERM, busy: the call under way' "$(head -n 1 "$answer" | cut -d';' -f1)" answered \
    has "$(<"$answer")" '^64 sequences, 32768 tokens'
  remove busy
}

# start_slowly: with so little CPU that loading and warming up last for seconds.
start_slowly() {
  start early "$(model_at "$model")" --cpus=0.2
  await_line early ' Listening. '
}

# At moments spread over the start: weights, kernels, calibration, warm-up.
check_stop_early() {
  local begun whole part code took worst=0 codes='' serving=0
  start_slowly
  begun=$(now_ms)
  serves early
  whole=$(($(now_ms) - begun))
  remove early
  for part in 0 20 40 60 80; do
    start_slowly
    sleep "$(awk -v ms=$((whole * part / 100)) 'BEGIN { print ms / 1000 }')"
    ! has "$(log_of early)" ' Serving\. ' || serving=$((serving + 1))
    read -r code took < <(signal early TERM)
    codes+="$code " worst=$((took > worst ? took : worst))
    remove early
  done
  check "SIGTERM at 0, 20 … 80 % of a start of $whole ms" \
    "exit codes ${codes% }, after at most $worst ms; $serving of 5 served already" \
    '0, at most 2000 ms; at least 3 in time' \
    eval "is '$codes' '0 0 0 0 0 ' && at_most $worst 2000 && at_most $serving 2"
}

# A crash, and the engine's own restart.
check_restart() {
  start again "$(model_at "$PWD/$reverse_model")" --restart=on-failure
  serves again
  kill -s KILL "$(pid_of again)"
  check 'restarted after kill -9' 'served, answered again' 'the digits in reverse' \
    eval "await_line again ' Serving. ' 2 && answers again"
  remove again
}
