# shellcheck shell=bash disable=SC2154
# start_checks.sh: under which constraints the server starts and answers. Sourced by image.sh.

reverse_model=deploy/models/reverse

# check_serves NAME WHAT [OPTION]...: starts with the bundled model and asks it.
check_serves() {
  local name=$1 what=$2
  shift 2
  start "$name" "$(model_at "$PWD/$reverse_model")" "$@"
  check "$what" 'served, answered' 'the digits in reverse' eval "serves $name && answers $name"
}

check_start() {
  check_serves plain 'starts, answers'
  check_process plain
  check_health plain
  # Podman itself adds the user, the names of hosts and the mount points.
  local changed
  local own='etc(/(group|passwd|hosts|hostname|resolv.conf|mtab))?|run(/.containerenv)?|models'
  changed=$(engine diff "$prefix-plain" | grep -vE "^[AC] /($own)$" | paste -sd' ' || true)
  check 'written into the container, writable as it is' "${changed:-nothing}" nothing \
    is "$changed" ''
  remove plain

  check_serves readonly 'read-only, not a writable place in it' \
    --read-only --read-only-tmpfs=false
  remove readonly
  check_serves tmp 'read-only, 1 MB of /tmp' \
    --read-only --read-only-tmpfs=false --tmpfs=/tmp:size=1m
  local left
  left=$(engine exec "$prefix-tmp" /usr/bin/find /tmp -type f | wc -l)
  check 'files left in /tmp' "$left" 0 is "$left" 0
  remove tmp
  check_serves shellless 'no shell in the image' \
    --volume=/dev/null:/usr/bin/dash:ro --volume=/dev/null:/usr/bin/bash:ro
  check 'health check without a shell' "$(health shellless)" 0 is "$(health shellless)" 0
  remove shellless
  check_other_user
  check_tls
  check_baked
  check_start_time
}

check_process() {
  local pid
  pid=$(pid_of "$1")
  check 'process 1' "$(<"/proc/$pid/comm")" encoderd is \
    "$(<"/proc/$pid/comm") $(awk '/^NSpid/ { print $NF }' "/proc/$pid/status")" 'encoderd 1'
  check 'its user' "$(awk '/^Uid/ { print $2 }' "/proc/$pid/status")" 65532 is \
    "$(awk '/^Uid/ { print $2 }' "/proc/$pid/status")" 65532
}

# The exit code of the image's own health check, run in the container.
health() { engine healthcheck run "$prefix-$1" >/dev/null 2>&1 && echo 0 || echo $?; }

check_health() {
  check 'health check: serving' "$(health "$1")" 0 is "$(health "$1")" 0
  start draining "$(model_at "$PWD/$reverse_model")" -- --plaintext --drain_delay=30s
  serves draining
  kill -s TERM "$(pid_of draining)"
  await_line draining ' Draining. '
  check 'health check: draining' "$(health draining)" 1 is "$(health draining)" 1
  remove draining
  start elsewhere "$(model_at "$PWD/$reverse_model")" -- --plaintext --health_listen=127.0.0.1:0
  serves elsewhere
  check 'health check: nobody listens' "$(health elsewhere)" 1 is "$(health elsewhere)" 1
  remove elsewhere
}

# Another user without any right, and a model that belongs to a third and is read-only throughout.
check_other_user() {
  local folder=$work/model_of_another
  cp -r "$reverse_model" "$folder"
  chown -R 4242:4242 "$folder"
  chmod -R a=rX "$folder"
  start other "$(model_at "$folder")" --user 12345:0 --cap-drop=all \
    --security-opt=no-new-privileges --env HOME=/nonexistent --read-only --read-only-tmpfs=false
  check 'as 12345:0, no capability, no home, the model of 4242' 'served, answered' \
    'the digits in reverse' eval 'serves other && answers other'
  local pid is_so
  pid=$(pid_of other)
  is_so=$(
    {
      awk '/^(Uid|Groups|CapEff|NoNewPrivs)/ { print $2 }' "/proc/$pid/status"
      tr '\0' '\n' <"/proc/$pid/environ" | grep '^HOME='
    } | paste -sd' ')
  check 'that container is what it was asked to be' "$is_so" \
    'user, capabilities, no new privileges' \
    is "$is_so" '12345 0 0000000000000000 1 HOME=/nonexistent'
  remove other
}

# Flags in place of the image's --plaintext; its health check does not mind.
check_tls() {
  local keys=$work/keys
  mkdir "$keys"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$keys/key" -out "$keys/cert" 2>/dev/null
  chmod -R a=rX "$keys"
  start tls "$(model_at "$PWD/$reverse_model")" --volume="$keys:/keys:ro" --read-only -- \
    --tls_cert_file=/keys/cert --tls_key_file=/keys/key
  check 'TLS: a client that knows the certificate' 'served, answered' 'the digits in reverse' \
    eval "serves tls && answers tls --tls --tls_ca_file='$keys/cert'"
  check 'TLS: health check' "$(health tls)" 0 is "$(health tls)" 0
  check 'TLS: a client in plaintext' 'refused' 'no answer' fails answers tls
  remove tls
}

# The one-liner of the Dockerfile's head.
check_baked() {
  local image=$image-baked
  printf 'FROM %s\nCOPY . /models\n' "${image%-baked}" |
    buildah bud --quiet --pull-never --isolation chroot --format docker -t "$image" -f - \
      "$reverse_model" >/dev/null
  start baked --read-only
  check 'an image that brings its model' 'served, answered' 'the digits in reverse' \
    eval 'serves baked && answers baked'
  remove baked
  engine rmi "$image" >/dev/null
}

# From the command to the line that says SERVING.
check_start_time() {
  local begun served times=()
  for _ in 1 2 3 4 5; do
    begun=$(now_ms)
    start minilm "$(model_at "$model")" --read-only
    serves minilm
    served=$(log_of minilm | sed -n 's/ .* Serving\. .*//p')
    times+=($(($(date -d "$served" +%s%3N) - begun)))
    remove minilm
  done
  check "from podman run to SERVING: $(basename "$model")" \
    "$(median "${times[@]}") ms ($(spread "${times[@]}"))" 'at most 3000 ms, median of 5' \
    at_most "$(median "${times[@]}")" 3000
}
