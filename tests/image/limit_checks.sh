# shellcheck shell=bash disable=SC2154
# limit_checks.sh: the limits of CPU and memory that a container has. Sourced by image.sh.

# ---- CPU -----------------------------------------------------------------------------------------

# check_workers WORKERS OPTION...: how many workers the server takes under the options.
check_workers() {
  local expected=$1 got
  shift
  start workers "$(model_at "$PWD/$reverse_model")" "$@"
  await_line workers ' Listening. '
  got=$(log_of workers | sed -n 's/.* Listening\..* workers=\([0-9]*\) .*/\1/p')
  check "workers under ${*:-no limit}" "$got" "$expected" is "$got" "$expected"
  remove workers
}

check_cpu() {
  check_workers "$(nproc)"
  check_workers 1 --cpus=0.5
  check_workers 1 --cpus=1
  check_workers "$(($(nproc) < 2 ? 1 : 2))" --cpus=1.5
  check_workers 1 --cpuset-cpus=0
  check_quota
}

# Calls per second that a server answers with 32 in flight.
rate() {
  client "$1" load --arrival=saturate --outstanding=32 --lengths=fixed:128 --deadline=60s \
    --warm_up=1s --duration=5s --json 2>/dev/null |
    sed -n 's/.*"achieved_rate":\([0-9.]*\).*/\1/p'
}

# Two servers take turns, so that what else the machine does meets both.
check_quota() {
  local half one ratio ratios=() halves=() ones=()
  start half "$(model_at "$model")" --cpus=0.5
  start one "$(model_at "$model")" --cpus=1
  serves half
  serves one
  for _ in 1 2 3 4 5; do
    half=$(rate half)
    one=$(rate one)
    ratio=$(awk -v a="$half" -v b="$one" 'BEGIN { printf "%.3f", a / (b / 2) }')
    halves+=("$half") ones+=("$one") ratios+=("$ratio")
  done
  check 'throughput at 0.5 CPU / half of that at 1 CPU' \
    "$(median "${ratios[@]}") ($(spread "${ratios[@]}")): $(median "${halves[@]}") and $(
      median "${ones[@]}") calls/s" 'at least 0.9, median of 5' \
    at_least "$(median "${ratios[@]}")" 0.9
  remove half
  remove one
}

# ---- Memory ----------------------------------------------------------------------------------------

# The memory, in MiB, that --check suggests under the flags given.
suggested() {
  run --rm --network=none "$(model_at "$model")" "$image" --plaintext --check "$@" |
    sed -n 's/^suggested memory request: *\([0-9]*\).*/\1/p'
}

# Answers as large as the model gives, from more callers than the budget has room for, on
# connections enough that no share of a connection protects it.
press() {
  client "$1" load --arrival=saturate --outstanding=128 --connections=16 --lengths=fixed:512 \
    --hidden_states --attentions --max_response_bytes=268435456 --deadline=60s --warm_up=1s \
    --duration=15s --json 2>/dev/null
}

peak_mib() { awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$(pid_of "$1")/status"; }

# check_within WHAT LIMIT FLAG...: a server with this limit outlives the load.
check_within() {
  local what=$1 limit=$2 result answered refused state
  shift 2
  start memory "$(model_at "$model")" --memory="${limit}m" -- --plaintext "$@"
  serves memory
  result=$(press memory)
  answered=$(sed -n 's/.*"answered":\([0-9]*\).*/\1/p' <<<"$result")
  refused=$(sed -n 's/.*"MEMORY_BUDGET":\([0-9]*\).*/\1/p' <<<"$result")
  state=$(inspect memory '{{.State.Status}} {{.State.OOMKilled}}')
  check "$what" "${state% *}, peak $(peak_mib memory) of $limit MiB; $answered calls answered, ${refused:-0} refused" \
    'running, never killed' eval "is '$state' 'running false' && at_least '$answered' 1"
  remove memory
}

check_memory() {
  local enough small begun state
  enough=$(suggested)
  small=$(suggested --max_inflight_bytes=67108864)
  check_within 'memory: as --check suggests' "$enough"
  check_within 'memory: the same with --max_inflight_bytes=67108864' "$small" \
    --max_inflight_bytes=67108864
  # Far below: the kernel ends it while it loads; it never hangs.
  begun=$(now_ms)
  start starved "$(model_at "$model")" --memory=100m
  await_line starved ' Serving. ' || true
  state=$(inspect starved '{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}')
  check 'memory: 100 MiB, less than the weights and the process' \
    "$state after $(($(now_ms) - begun)) ms" 'killed with 137, not hanging' is "$state" 'exited 137 true'
  remove starved
}
