#!/bin/bash
# Goal: the server needs nothing but its program, its libraries and a model that it may read: no folder that can be written, no home,
#       no name, no right, no variable of the environment.
# Method: runs it in a mount namespace where every file system is read-only, as a user that does not exist, without capabilities, with
#         the bundled model, which belongs to another; then once more with 1 MB of /tmp. The model reverses digits: the answer is checked.
#
# usage: confined_test.sh ENCODERD ENCODERCTL MODEL_DIR      exit code 77: no namespaces can be made here
set -euo pipefail

server=$(realpath -e -- "$1") client=$(realpath -e -- "$2") model=$(realpath -e -- "$3")
if [[ ${CONFINED-} != yes ]]; then
  if ((EUID != 0)) || ! unshare --mount true 2>/dev/null; then
    echo 'needs root and mount namespaces'
    exit 77
  fi
  CONFINED=yes exec unshare --mount --propagation private bash "$0" "$@"
fi

fail() { echo "confined_test.sh: $*"; exit 1; }

# A tree that is this one with the programs and the model at /mnt, read-only from top to bottom.
root=/mnt/root
mount -t tmpfs tmpfs /mnt
mkdir /mnt/root /mnt/model
cp -- "$model"/{config.json,model.safetensors} /mnt/model
chown -R 4242:4242 /mnt/model
chmod -R a=rX /mnt /mnt/model
touch /mnt/server /mnt/client
mount --bind -- "$server" /mnt/server
mount --bind -- "$client" /mnt/client
mount --rbind / "$root"
while read -r _ place _; do
  place=$(printf '%b' "$place")
  [[ $place/ != "$root"/* ]] || mount -o remount,bind,ro -- "$place"
done </proc/self/mounts
for folder in / /mnt /mnt/model /tmp /var/tmp /dev/shm; do
  ! chroot "$root" touch "$folder/written" 2>/dev/null || fail "$folder can be written: nothing is tested"
done

# Starts the server as nobody's user and asks it; what it says comes through a pipe.
serve_and_ask() {
  local line port answer pid status=0
  coproc { exec chroot "$root" /usr/bin/setpriv --reuid=12345 --regid=0 --clear-groups --inh-caps=-all \
    --bounding-set=-all --no-new-privs /usr/bin/env -i -C / /mnt/server --model_dir=/mnt/model \
    --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 2>&1; }
  pid=$COPROC_PID
  exec {log}<&"${COPROC[0]}"
  until [[ ${line-} == *' Serving. '* ]]; do
    read -rt 20 -u "$log" line || fail "ended, or did not serve in 20 s"
    echo "$line"
  done
  port=${line##*port=}
  answer=$(chroot "$root" /mnt/client encode 3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3 --one_hot=10 --logits --json \
    --address="127.0.0.1:$port" | sed -n 's/.*"logits":{"data":\[\([^]]*\)\].*/\1/p' | tr ',' '\n' |
    awk '(NR - 1) % 10 == 0 || $1 > best { best = $1; digit = (NR - 1) % 10 } NR % 10 == 0 { printf "%d", digit }')
  [[ $answer == 3979853562951413 ]] || fail "expected the digits reversed, got $answer"
  kill -TERM "$pid"
  wait "$pid" || status=$?
  ((status == 0)) || fail "expected exit code 0, got $status"
  exec {log}<&-
}

serve_and_ask
mount -t tmpfs -o size=1m,mode=1777 tmpfs "$root/tmp"
serve_and_ask
[[ -z $(ls -A "$root/tmp") ]] || fail "left in /tmp: $(ls -A "$root/tmp")"
