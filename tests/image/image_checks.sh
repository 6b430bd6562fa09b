# shellcheck shell=bash disable=SC2154
# image_checks.sh: what the image is, without serving. Sourced by image.sh.

# field TEMPLATE, label NAME: of the image's configuration.
field() { engine image inspect --format "$1" "$image"; }
label() { field "{{index .Labels \"org.opencontainers.image.$1\"}}"; }

megabytes() { awk '{ printf "%.0f", $1 / 1e6 }'; }

check_image() {
  local size base version
  size=$(field '{{.Size}}' | megabytes)
  base=$(engine image inspect --format '{{.Size}}' "$base_image" | megabytes)
  check 'size without a model' "$size MB, of which base $base MB" 'at most 180 MB' \
    at_most "$size" 180
  version=$(run --rm --network=none "$image" --version)
  check 'label: version' "$(label version)" "that of: $version" has "$version" " $(label version) "
  [[ -z $build ]] ||
    check 'label: revision' "$(label revision)" 'the commit' is "$(label revision)" "$revision"
  check 'label: licenses' "$(label licenses)" Apache-2.0 is "$(label licenses)" Apache-2.0
  check user "$(field '{{.User}}')" 'numeric, not root' \
    has "$(field '{{.User}}')" '^[1-9][0-9]*:[1-9][0-9]*$'
  check 'entry point' "$(field '{{index .Config.Entrypoint 0}}')" 'the program, no shell' \
    is "$(field '{{index .Config.Entrypoint 0}}')" /usr/bin/encoderd
  check 'health check' "$(field '{{index .HealthCheck.Test 0}}')" 'CMD, no shell' \
    is "$(field '{{index .HealthCheck.Test 0}}')" CMD
  check_contents
}

# packages_of IMAGE: their names, from the image's own list.
# shellcheck disable=SC2016  # dpkg-query expands it
packages_of() {
  run --rm --network=none --entrypoint /usr/bin/dpkg-query "$1" -W -f '${Package}\n' |
    LC_ALL=C sort
}

# What the image has beyond its base.
check_contents() {
  local before after added root closed
  before=$(packages_of "$base_image")
  after=$(packages_of "$image")
  added=$(comm -13 <(echo "$before") <(echo "$after"))
  check 'packages beyond the base' "$(wc -l <<<"$added")" 'shared libraries alone' \
    is "$(grep -vE '^(lib|openssl-provider|zlib1g)' <<<"$added" | paste -sd' ')" ''
  root=$(engine image mount "$image")
  closed=$(find "$root/usr" -xdev \( -type f ! -perm -o=r -o -type d ! -perm -o=x \) | wc -l)
  engine image unmount "$image" >/dev/null
  check 'files in /usr that another user may not read' "$closed" 0 is "$closed" 0
}
