#!/bin/bash
# debian13.sh: runs a command in the build environment, which is Debian 13 with the packages of
# packages.txt. `debian13.sh --help` tells a user what that means.
#
# How it works, top to bottom:
#   main      reads the options and chooses between the two ways
#   native    on Debian 13: installs what is missing, runs the command
#   in_root   elsewhere: finds or makes the Debian 13 root, enters it, runs the command
#   make_root bootstraps beside the final name and renames, so that a root is whole or absent
#   enter     mounts in a namespace of its own and execs: no mount outlives the command, and the
#             command has this script's process id, so signals and exit codes need no relay
# A test may source this file: then it only defines functions.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
checkout=${here%/*}
package_list=$here/packages.txt
os_release=/etc/os-release
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cache=${XDG_CACHE_HOME:-~/.cache}/encoderd
heartbeat_seconds=5

usage() {
  cat <<EOF
usage: deploy/debian13.sh [--with SECTION]... [--bind DIR]... COMMAND [ARGUMENT]...
       deploy/debian13.sh --packages [SECTION]...

Runs COMMAND in the build environment of encoderd: Debian 13 with the packages of
deploy/packages.txt. Its exit code and its signals are COMMAND's own.

  --with SECTION   adds a section of packages to "runtime" and "build", which are always there:
                   $(sections | grep -vx -e runtime -e build | paste -sd' ')
  --bind DIR       a folder outside the checkout that COMMAND sees too, at the same path
  --packages       prints the packages of the named sections (default: runtime build) and exits
  --help           prints this

On Debian 13 missing packages are installed with apt-get and COMMAND runs as it is. Those of
"test" include Prometheus and HAProxy, whose services Debian starts once they are installed.

Elsewhere (Debian 12, Ubuntu 24.04; as root) COMMAND runs in a Debian 13 root that is made once,
in about a minute, by mmdebstrap, and kept in
  $cache
The host gets no package but mmdebstrap and Debian's keyring. COMMAND sees this checkout, the
current folder and /tmp at their own paths, the host's network, /proc, /sys and /dev. From the
environment it gets proxies, certificates, PIP_*, GOPROXY and its kin, CI, ENCODERD_*, CTEST_*,
GTEST_*, *SAN_OPTIONS, NINJA_STATUS and the terminal's settings; give others with
"env NAME=VALUE COMMAND". The compiler cache is shared by all roots. Deleting the folder undoes
everything.

Examples:
  deploy/debian13.sh cmake --preset release
  deploy/debian13.sh --with test ctest --preset release -R Safetensors
  deploy/debian13.sh --with tools bash         # a shell to look around
  deploy/debian13.sh --bind ~/models build/release/bin/encoderd --model_dir ~/models/mine
EOF
}

say() { printf 'debian13.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# ---- The package list ----------------------------------------------------------------------------

sections() { sed -n 's/^\[\(.*\)\]$/\1/p' "$package_list"; }

# Prints the packages of the named sections, sorted, each once.
packages() {
  local section
  for section in "$@"; do
    sections | grep -qxF -- "$section" ||
      die "unknown section '$section': expected one of $(sections | paste -sd' ')"
  done
  awk -v wanted=" $* " '
    { sub(/#.*/, ""); gsub(/[ \t]/, "") }
    /^\[/ { inside = index(wanted, " " substr($0, 2, length($0) - 2) " "); next }
    inside && $0 != ""' "$package_list" | LC_ALL=C sort -u
}

# ---- Debian 13: natively -------------------------------------------------------------------------

# Prints one value of os-release.
# shellcheck source=/dev/null
os() { (. "$os_release" && eval "printf '%s' \"\${$1-}\""); }

is_debian13() { [[ $(os ID) == debian && $(os VERSION_ID) == 13 ]]; }

# Prints those of the packages on standard input (sorted) that are not installed.
missing() {
  comm -23 - <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null |
    sed -n 's/^installed //p' | LC_ALL=C sort -u)
}

apt_install() {
  export DEBIAN_FRONTEND=noninteractive
  # A foreign source that cannot be read is no reason to stop; a package that is missing is.
  apt-get -q -o DPkg::Lock::Timeout=300 update || say "some package sources could not be read"
  apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
}

# native COMMAND...: with the packages of `wanted`.
native() {
  local lacking
  mapfile -t lacking < <(printf '%s\n' "${wanted[@]}" | missing)
  if ((${#lacking[@]})); then
    ((EUID == 0)) || die "packages are missing. As root, once:" \
      "apt-get install --no-install-recommends ${lacking[*]}"
    say "installing ${#lacking[@]} packages"
    apt_install "${lacking[@]}" >&2
  fi
  exec "$@"
}

# ---- Elsewhere: making the root ------------------------------------------------------------------

# What every root is made with. Manuals and translations would be half of the unpacking time.
bootstrap_options=(--mode=root --format=directory --variant=minbase
  --dpkgopt=force-unsafe-io --dpkgopt=path-exclude=/usr/share/man/*
  --dpkgopt=path-exclude=/usr/share/doc/* --dpkgopt=path-exclude=/usr/share/locale/*)

# The folder of the root with the packages of `wanted`: another list, another name.
root_of_wanted() {
  local digest
  digest=$(printf '%s\n' "${wanted[@]}" "${bootstrap_options[@]}" | sha256sum)
  printf '%s/debian13-%s-%s' "$cache" "$(uname -m)" "${digest:0:12}"
}

# Prints, as lines of a sources.list, the host's own Debian mirrors with this release in place of
# the host's. apt reads its configuration for us, whichever of its two formats it is in; a source is
# Debian's by the origin in its downloaded release file. Nothing is printed where there is none.
# shellcheck disable=SC2016  # apt expands these itself
debian_sources() {
  apt-get indextargets 'Created-By: Packages' 'Component: main' 'Origin: Debian' \
    --format '$(REPO_URI) $(RELEASE)' | awk '
    $2 !~ /^[a-z]+(-updates|-security)?$/ { next }
    { sub(/^[a-z]+/, "trixie", $2) }
    !seen[$2]++ { print "deb", $1, $2, "main" }'
}

# Prints the host's apt settings for reaching its mirrors (proxies and the like), one a line.
apt_settings() {
  apt-config dump | sed -nE '/^Acquire::(https?|ftp|Check-|Retries|ForceIPv)/s/;$//p'
}

# Runs a command as the first process of its own process and mount namespaces: when it ends or is
# killed, and it is when this script dies, all that it started and mounted goes too.
isolated=(setpriv --pdeathsig KILL
  unshare --mount --propagation private --pid --fork --kill-child --mount-proc --)

# with_heartbeat TITLE LOG COMMAND...: runs the command with its output in LOG and says every few
# seconds that it is still at it. The command holds the write end of a pipe, so that the wait ends
# when it does. `child` names it for the one who interrupts.
with_heartbeat() {
  local title=$1 log=$2 start=$SECONDS alive status=0
  shift 2
  say "$title"
  exec {alive}< <(exec 3>&1 </dev/null >"$log" 2>&1 "$@")
  child=$!
  while read -rt "$heartbeat_seconds" -u "$alive" || (($? > 128)); do
    say "$title: $((SECONDS - start)) s ($(tail -n 1 -- "$log" | cut -c -60))"
  done
  wait "$child" || status=$?
  child=''
  exec {alive}<&-
  ((status == 0)) || { tail -n 30 -- "$log" >&2; die "failed: $title (whole log: $log)"; }
  say "$title: done in $((SECONDS - start)) s"
}

# Leaves neither a running bootstrap nor half a root behind.
abandon() {
  [[ -z $child ]] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
  # The dying may still write during the first pass.
  rm -rf --one-file-system -- "$partial" 2>/dev/null || rm -rf --one-file-system -- "$partial"
}

# make_root ROOT: makes it beside its name and renames it, with the lock held.
make_root() {
  local root=$1 sources settings
  partial=$root.partial child=''
  trap abandon EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # A killed predecessor could not tidy up; the lock says that it is gone.
  rm -rf --one-file-system -- "$cache"/debian13-*.partial

  mapfile -t sources < <(debian_sources)
  if ! command -v mmdebstrap >/dev/null || [[ ! -e $keyring ]] || ((${#sources[@]} == 0)); then
    say "installing mmdebstrap and Debian's keyring on this host"
    apt_install mmdebstrap debian-archive-keyring >&2
    mapfile -t sources < <(debian_sources)
  fi
  # Without a source of the host's own, mmdebstrap knows where Debian is.
  mapfile -t settings < <(apt_settings)
  with_heartbeat "making a Debian 13 root with ${#wanted[@]} packages" "$root.log" \
    "${isolated[@]}" mmdebstrap "${bootstrap_options[@]}" --keyring="$keyring" \
    "${settings[@]/#/--aptopt=}" --include="$(IFS=,; printf '%s' "${wanted[*]}")" \
    trixie "$partial" "${sources[@]}"

  # git refuses a checkout of another user, and the command always runs as root.
  printf '[safe]\n\tdirectory = *\n' >"$partial/etc/gitconfig"
  # Nothing was written through so far: the name must not reach the disk before the files do.
  sync --file-system -- "$partial"
  mv -T -- "$partial" "$root"
  trap - EXIT HUP INT TERM
}

# Makes the root unless it is there; two runs at once make it once.
ensure_root() {
  local root=$1 lock
  [[ ! -d $root ]] || return 0
  mkdir -p -- "$cache/ccache"
  exec {lock}>"$cache/lock"
  flock -n "$lock" || { say "waiting for another run to make its root"; flock "$lock"; }
  [[ -d $root ]] || make_root "$root"
  exec {lock}>&-
}

# ---- Elsewhere: entering it ----------------------------------------------------------------------

# Files of the host by which it reaches the network; the root's own are hidden by them.
host_files=(/etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt)

# The folders of the host that the command sees: those of --bind, the checkout (with the repository
# that a linked worktree belongs to), the cache, /tmp.
visible_folders() {
  printf '%s\n' /tmp "$cache" "$checkout" "${binds[@]}"
  [[ ! -f $checkout/.git ]] || sed -n 's|^gitdir: \(/.*\)/worktrees/.*|\1|p' "$checkout/.git"
}

# Prints NAME=VALUE, each ended by a NUL, for what the command keeps of the environment.
kept_environment() {
  local name
  while IFS= read -r name; do
    case $name in
      *_proxy | *_PROXY | PIP_* | SSL_CERT_* | *_CA_BUNDLE | GOPROXY | GOSUMDB | GONOSUMDB | \
        GOPRIVATE | GOFLAGS | CI | ENCODERD_* | CTEST_* | GTEST_* | *SAN_OPTIONS | NINJA_STATUS | \
        TERM | COLORTERM | NO_COLOR | COLUMNS | SOURCE_DATE_EPOCH)
        printf '%s=%s\0' "$name" "${!name}" ;;
    esac
  done < <(compgen -e)
}

# enter ROOT COMMAND...: called again in a fresh mount namespace. Objects in the compiler cache are
# found whatever the checkout's path is and whichever root compiled them.
enter() {
  local root=$1 folder file dir environment
  shift
  dir=$(pwd -P)
  # As a mount point the root can be `/` of namespaces that the command makes itself.
  mount --bind -- "$root" "$root"
  for folder in /proc /sys /dev; do mount --rbind "$folder" "$root$folder"; done
  while IFS= read -r folder; do
    mkdir -p -- "$root$folder"
    mount --bind -- "$folder" "$root$folder"
  done < <(visible_folders)
  for file in "${host_files[@]}"; do
    [[ -e $file ]] || continue
    [[ -e $root$file ]] || : >"$root$file"
    mount --bind -- "$file" "$root$file"
  done
  mapfile -td '' environment < <(kept_environment)
  exec chroot "$root" /usr/bin/env -i -C "$dir" "${environment[@]}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LANG=C.UTF-8 XDG_CACHE_HOME="${cache%/*}" CCACHE_DIR="$cache/ccache" \
    CCACHE_BASEDIR="$checkout" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content "$@"
}

# in_root COMMAND...: with the packages of `wanted`.
in_root() {
  local root folder dir
  ((EUID == 0)) || die "this host is $(os PRETTY_NAME), where the command needs a Debian 13 root," \
    "and only root can make and enter one. Run it as root, or on Debian 13, or use the Dockerfile."
  dir=$(pwd -P)
  while IFS= read -r folder; do
    [[ $dir/ != "$folder"/* ]] || { root=$(root_of_wanted); break; }
  done < <(visible_folders)
  [[ -n ${root-} ]] || die "the command would not see the current folder $dir:" \
    "change to $checkout, or give it with --bind"
  unshare --mount true 2>/dev/null || die "no mount namespace can be made here (a container" \
    "without CAP_SYS_ADMIN?): start from a Debian 13 container, where none is needed"
  ensure_root "$root"
  exec unshare --mount --propagation private -- bash "$here/debian13.sh" --entered \
    "${binds[@]/#/--bind=}" -- "$root" "$@"
}

# ---- Options -------------------------------------------------------------------------------------

main() {
  local chosen=(runtime build) entered='' list
  binds=()
  while (($#)); do
    case $1 in
      --help | -h) usage; return ;;
      --packages) shift; (($#)) || set -- runtime build; packages "$@"; return ;;
      --with) chosen+=("${2-}"); shift 2 || die "--with needs a section" ;;
      --bind) binds+=("$(realpath -e -- "${2-}")"); shift 2 ;;
      --bind=*) binds+=("${1#*=}"); shift ;;
      --entered) entered=1; shift ;;
      --) shift; break ;;
      -*) die "unknown option $1; --help tells the ones there are" ;;
      *) break ;;
    esac
  done
  (($#)) || die "no command given; --help tells what this does"
  [[ -z $entered ]] || enter "$@"
  list=$(packages "${chosen[@]}")
  mapfile -t wanted <<<"$list"
  if is_debian13; then native "$@"; else in_root "$@"; fi
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then main "$@"; fi
