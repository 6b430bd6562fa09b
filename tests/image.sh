#!/bin/bash
# image.sh: builds the image of the Dockerfile for real, runs it, and checks what it promises.
# `image.sh --help` tells what it needs.
#
# How it works: the image is built by buildah on a base that mmdebstrap makes, and run by podman and
# runc; the checks are in tests/image/, a file a subject, and each prints a row of the table.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

install='apt-get install --no-install-recommends podman buildah runc mmdebstrap debian-archive-keyring openssl'

usage() {
  cat <<EOF
usage: tests/image.sh [--model=DIR] [--only=GROUP[,GROUP]...] [--no-build] [--with-tests]

Builds the image, runs it as users do, and prints a table of checks: name, measured, bound. Exit
code 0 if all passed, 1 if one missed, 64 if something is missing here.

  --model=DIR    a MiniLM-L6 (config.json, model.safetensors) for what takes a model of some size;
                 default build/real_model/all-MiniLM-L6-v2, which tests/real_model.sh fetches
  --only=GROUP   of the checks: image, start, cpu, memory, stop
  --no-build     takes the image of the last run
  --with-tests   builds the test stage too: the whole test-suite, in the image's environment

Needs root, and on this host: podman, buildah, runc, mmdebstrap with Debian's keyring, openssl
  $install
No registry of images is used: the base is made of packages, unless debian:trixie-slim is there.
The first build takes about eight minutes on two cores, the next ones seconds; the checks five.
Machines that do other work at the same time make the checks of time and of CPU miss.
EOF
}

die() { printf 'image.sh: %s\n' "$*" >&2; exit 64; }
step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

export STORAGE_DRIVER=${STORAGE_DRIVER:-overlay}
image=localhost/encoderd:image-test
base_image=debian:trixie-slim
prefix=encoderd-image-test-$$
groups=(image start cpu memory stop)
model=$PWD/build/real_model/all-MiniLM-L6-v2
build=1 with_tests=''
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)

while (($#)); do
  case $1 in
    --model=*) model=$(realpath -e -- "${1#*=}") || die "no such folder: ${1#*=}" ;;
    --only=*) IFS=, read -ra groups <<<"${1#*=}" ;;
    --no-build) build='' ;;
    --with-tests) with_tests=1 ;;
    --help) usage; exit ;;
    *) die "unknown option $1; --help tells the ones there are" ;;
  esac
  shift
done
((EUID == 0)) || die 'only root can build and run here'
for tool in podman buildah runc mmdebstrap openssl; do
  command -v "$tool" >/dev/null || die "$tool is missing: $install"
done
[[ -f $model/config.json ]] ||
  die "no model in $model: run tests/real_model.sh first, or give one with --model"

work=$(mktemp -d)
chmod a+rx "$work" # clients in containers are another user
results=$work/results
tidy() {
  podman ps --all --quiet --filter "name=^$prefix-" | xargs -r podman rm --force --time 0 >/dev/null
  rm -rf -- "$work"
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The official slim base has the same packages, and leaves out the same files.
make_base() {
  podman image exists "$base_image" && return
  step "Making $base_image"
  # shellcheck source=deploy/debian13.sh
  (. deploy/debian13.sh
    mapfile -t sources < <(debian_sources)
    mapfile -t settings < <(apt_settings)
    excluded=()
    for path in doc groff info lintian linda locale man; do
      excluded+=(--dpkgopt="path-exclude=/usr/share/$path/*")
    done
    mmdebstrap --mode=root --format=tar --variant=minbase --keyring="$keyring" \
      "${settings[@]/#/--aptopt=}" "${excluded[@]}" --dpkgopt='path-include=/usr/share/doc/*/copyright' \
      trixie - "${sources[@]}") | podman import - "$base_image" >/dev/null
}

build_image() {
  local options=(--layers --pull-never --isolation chroot --network host --format docker)
  make_base
  step 'Building the image'
  buildah bud "${options[@]}" --build-arg REVISION="$revision" \
    --build-arg CREATED="$(date -u +%FT%TZ)" -t "$image" .
  [[ -z $with_tests ]] || build_tests "${options[@]}"
}

# build_tests OPTION...: some tests fetch schemas, by the way that this host goes.
build_tests() {
  local file options=("$@")
  step 'Building the test stage'
  for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [[ ! -e $file ]] || options+=(--volume="$file:$file:ro")
  done
  buildah bud "${options[@]}" --target test .
}

# Runs the checks of a group. One that stops half-way is a miss, and the next group runs.
run_group() {
  step "Checks: $1"
  set +e
  (set -e; "check_$1")
  local status=$?
  set -e
  ((status)) || return 0
  [[ ! -e $work/load.log ]] || tail -n 5 "$work/load.log"
  check "the checks of '$1' ran to their end" "exit code $status" 0 false
}

# shellcheck source=tests/image/containers.sh
. tests/image/containers.sh
for part in image start limit stop; do
  # shellcheck source=/dev/null
  . "tests/image/${part}_checks.sh"
done

[[ -z $build ]] || build_image
for group in "${groups[@]}"; do
  declare -F "check_$group" >/dev/null || die "unknown group $group; --help tells the ones there are"
  run_group "$group"
done

step 'Results'
column -t -s $'\t' -N verdict,check,measured,bound "$results"
missed=$(grep -c ^FAIL "$results" || true)
printf '\n%d checks, %d missed\n' "$(wc -l <"$results")" "$missed"
((missed == 0))
