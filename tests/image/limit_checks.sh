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
    --warm_up=1s --duration=5s --json 2>"$work/load.log" |
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

# ---- Memory --------------------------------------------------------------------------------------

# The memory, in MiB, that --check suggests under the flags given.
suggested() {
  run --rm --network=none "$(model_at "$model")" "$image" --plaintext --check "$@" |
    sed -n 's/^suggested memory request: *\([0-9]*\).*/\1/p'
}

# press NAME OUTPUT...: large answers, for more callers than the budget has room for, on connections
# enough that no share of a connection protects it.
press() {
  local name=$1
  shift
  client "$name" load "$@" --arrival=saturate --outstanding=128 --connections=16 \
    --lengths=fixed:512 --max_response_bytes=268435456 --deadline=60s --warm_up=1s \
    --duration=15s --json 2>"$work/load.log"
}

peak_mib() { awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$(pid_of "$1")/status"; }

# check_within WHAT LIMIT OUTPUTS FLAG...: a server with this limit outlives the load.
check_within() {
  local what=$1 limit=$2 outputs=$3 result answered refused state seen
  shift 3
  start memory "$(model_at "$model")" --memory="${limit}m" -- --plaintext "$@"
  serves memory
  # shellcheck disable=SC2086  # a list of flags
  result=$(press memory $outputs)
  answered=$(sed -n 's/.*"answered":\([0-9]*\).*/\1/p' <<<"$result")
  refused=$(sed -n 's/.*"MEMORY_BUDGET":\([0-9]*\).*/\1/p' <<<"$result")
  state=$(inspect memory '{{.State.Status}}')
  seen="$state, peak $(peak_mib memory) of $limit MiB"
  check "$what" "$seen; $answered calls answered, ${refused:-0} refused" \
    'running, never killed' eval "is '$state' running && at_least '$answered' 1"
  remove memory
}

check_memory() {
  local small=(--max_response_bytes=16777216 --max_inflight_bytes=167772160) begun state
  check_within 'memory: as --check suggests, maps and hidden states asked for' "$(suggested)" \
    '--hidden_states=all --attentions'
  check_within "memory: as it suggests with ${small[*]}" "$(suggested "${small[@]}")" \
    --hidden_states=all "${small[@]}"
  # Far below: the kernel ends it while it loads; it never hangs.
  begun=$(now_ms)
  start starved "$(model_at "$model")" --memory=100m
  await_line starved ' Serving. ' || true
  state=$(inspect starved '{{.State.Status}} with {{.State.ExitCode}}')
  check 'memory: 100 MiB, less than the weights and the process' \
    "$state after $(($(now_ms) - begun)) ms" 'killed (137), not hanging' \
    is "$state" 'exited with 137'
  remove starved
}
