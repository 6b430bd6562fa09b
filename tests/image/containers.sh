# shellcheck shell=bash disable=SC2154
# containers.sh: what the checks of image.sh run, ask and measure. Sourced; needs `image` (its name),
# `prefix` (of the names of its containers) and `results` (a file).
#
# Every container has a network of its own with nothing in it but its loopback: no port of this host
# is taken, and clients are containers that join it.

# Where no systemd runs, podman complains at each container that it cannot set a timer for the
# health check, which the checks run themselves; what makes a command fail is still printed.
engine() { podman --runtime runc --log-level fatal "$@"; }

# run OPTION_OF_PODMAN... IMAGE ARGUMENT...: podman's own limits may be above those of this host.
run() { engine run --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"; }

# start NAME [OPTION_OF_PODMAN]... [-- FLAG_OF_ENCODERD...]: runs the image, detached.
start() {
  local name=$prefix-$1 options=()
  shift
  while (($#)) && [[ $1 != -- ]]; do options+=("$1"); shift; done
  (($# == 0)) || shift
  run --detach --name "$name" --network=none "${options[@]}" "$image" "$@" >/dev/null
}

# A folder as the model, read-only.
model_at() { printf -- '--volume=%s:/models:ro' "$1"; }

# client NAME ARGUMENT...: the image's own client beside a running container, with no limits.
client() {
  local name=$prefix-$1
  shift
  run --rm --network="container:$name" --read-only --volume="$work:$work:ro" \
    --entrypoint /usr/bin/encoderctl "$image" "$@"
}

inspect() { engine container inspect --format "$2" "$prefix-$1"; }
log_of() { engine logs "$prefix-$1" 2>&1; }
pid_of() { inspect "$1" '{{.State.Pid}}'; }
remove() { engine rm --force --time 0 "$prefix-$1" >/dev/null; }

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# await_line NAME TEXT [TIMES]: until the log has the text so often; fails when the container ends
# before, or after a minute.
await_line() {
  local name=$1 text=$2 times=${3:-1} give_up=$((SECONDS + 60))
  until (($(log_of "$name" | grep -cF -- "$text") >= times)); do
    # One more look: the line may have come with the end.
    [[ $(inspect "$name" '{{.State.Status}}') == running || $times -gt 1 ]] ||
      (($(log_of "$name" | grep -cF -- "$text") >= times)) || return 1
    ((SECONDS < give_up)) || return 1
    sleep 0.05
  done
}

serves() { await_line "$1" ' Serving. '; }

# signal NAME SIGNAL...: sends the signals, and prints the exit code and the milliseconds until the
# process had gone: "0 312".
signal() {
  local name=$1 pid begun code
  shift
  pid=$(pid_of "$name")
  begun=$(now_ms)
  for code in "$@"; do kill -s "$code" "$pid"; done
  while [[ -d /proc/$pid ]] && (($(now_ms) - begun < 40000)); do sleep 0.01; done
  local took=$(($(now_ms) - begun))
  printf '%s %s\n' "$(engine wait "$prefix-$name")" "$took"
}

# The likeliest digit of each row of logits [16, 10], from a JSON answer on standard input.
digits_of() {
  sed -n 's/.*"logits":{"data":\[\([^]]*\)\].*/\1/p' | tr ',' '\n' |
    awk '(NR - 1) % 10 == 0 || $1 > best { best = $1; digit = (NR - 1) % 10 }
      NR % 10 == 0 { printf "%s%d", separator, digit; separator = "," }'
}

# answers NAME [FLAG]...: whether the bundled model, which reverses 16 digits, does so in that
# container; the flags are for the client's connection.
answers() {
  local name=$1
  shift
  [[ $(client "$name" encode 3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3 --one_hot=10 --logits --json "$@" |
    digits_of) == 3,9,7,9,8,5,3,5,6,2,9,5,1,4,1,3 ]]
}

median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }
spread() { printf '%s\n' "$@" | sort -g | sed -n '1p;$p' | paste -sd' ' | sed 's/ / to /'; }

# ---- Conditions and verdicts ---------------------------------------------------------------------

at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 <= b + 0) }'; }
at_least() { at_most "$2" "$1"; }
is() { [[ $1 == "$2" ]]; }
has() { grep -qE -- "$2" <<<"$1"; }
fails() { ! "$@"; }

# check NAME MEASURED BOUND CONDITION...: one row of the table; the condition decides.
check() {
  local name=$1 measured=$2 bound=$3 verdict=PASS
  shift 3
  "$@" || verdict=FAIL
  printf '%s\t%s\t%s\t%s\n' "$verdict" "$name" "$measured" "$bound" >>"$results"
  printf '  %s  %-58s %s (%s)\n' "$verdict" "$name" "$measured" "$bound"
}
