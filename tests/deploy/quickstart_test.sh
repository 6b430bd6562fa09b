#!/bin/bash
# Goal: deploy/quickstart.sh leads to an answer, a picture and an end in good order.
# Method: the script itself in a scratch checkout, with the programs of this build; what would build
# them again does nothing.
#
# usage: quickstart_test.sh ENCODERD ENCODERCTL
set -euo pipefail

source_dir=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
mkdir -p "$scratch/deploy" "$scratch/build/release/bin"
cp "$source_dir/deploy/quickstart.sh" "$scratch/deploy/"
ln -s "$source_dir/deploy/models" "$scratch/deploy/models"
ln -s "$1" "$scratch/build/release/bin/encoderd"
ln -s "$2" "$scratch/build/release/bin/encoderctl"
printf '#!/bin/sh\n[ "$1" = cmake ] || exec "$@"\n' >"$scratch/deploy/debian13.sh"
chmod +x "$scratch/deploy/debian13.sh"

output=$("$scratch/deploy/quickstart.sh" 2>&1) || { echo "$output"; exit 1; }
for words in 'answered  3,9,7,9,8,5,3,5,6,2,9,5,1,4,1,3' 'encoderd_ready 1' 'exited with 0' '== Done'; do
  [[ $output == *"$words"* ]] || { printf '%s\nFAILED: no "%s"\n' "$output" "$words"; exit 1; }
done
[[ -s $scratch/build/quickstart/attention.png ]] || { echo 'FAILED: there is no picture'; exit 1; }
