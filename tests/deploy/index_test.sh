#!/bin/sh
# Goal: nothing lies in deploy/ that nobody tries out.
# Method: deploy/README.md has a table with a row for each entry of deploy/ (itself and the build's
# CMakeLists.txt apart): its name, what it is
# for, and the tests that exercise it, as paths. Each entry has a row and each row an entry; each
# test exists and speaks of the entry, itself or in the CMakeLists.txt beside it. Exits 1 and names
# every row that breaks a rule.
cd "$(dirname "$0")/../.." || exit 1
index=deploy/README.md
broken=0

fault() {
  printf '%s\n' "$*"
  broken=1
}

# check_row ENTRY TESTS: tests are separated by blanks.
check_row() {
  [ -e "deploy/$1" ] || fault "$index: there is no deploy/$1"
  [ -n "$2" ] || fault "$index: no test is named for $1"
  for test in $2; do
    if [ ! -f "$test" ]; then
      fault "$index: $1: there is no $test"
    elif ! grep -qF "$1" "$test" "$(dirname "$test")/CMakeLists.txt" 2>/dev/null; then
      fault "$index: $test does not speak of $1"
    fi
  done
}

# "ENTRY test test …" for each row "| `entry` | words | `test`, `test` |".
rows() {
  sed -n 's/^| `\([^`]*\)` |.*| *\(`tests[^|]*\)|$/\1 \2/p' "$index" | tr -d '`,'
}

# What git knows; all there is where this is no checkout.
entries() {
  known=$(git ls-files deploy 2>/dev/null | cut -d/ -f2 | sort -u)
  printf '%s\n' "${known:-$(ls deploy)}"
}

for entry in $(entries); do
  case $entry in README.md | CMakeLists.txt) continue ;; esac
  rows | grep -q "^$entry " || fault "$index has no row for $entry"
done
table=$(mktemp) || exit 1
rows >"$table"
while read -r entry tests; do check_row "$entry" "$tests"; done <"$table"
rm "$table"

# A look at the rules themselves: they find what they are meant to find.
before=$broken
for bad in 'no_such_entry tests/run.sh' 'haproxy tests/no_such_test.sh' 'haproxy tests/layers_test.sh' \
  'haproxy'; do
  broken=0
  # shellcheck disable=SC2086 # an entry and its tests
  set -- $bad
  check_row "$1" "${2-}" >/dev/null
  [ "$broken" = 1 ] || { echo "\"$bad\" was not found: these rules find nothing"; exit 1; }
done
exit "$before"
