#!/bin/bash
# Goal: deploy/debian13.sh chooses, makes, enters and leaves the build environment as it promises.
# Method: a copy of the script is sourced in a scratch checkout; the programs that would install,
# bootstrap or reach the network are stand-ins on PATH. One case with a name, all without:
#   tests/deploy/debian13_test.sh [CASE]
#
# The sourced script is what uses the variables and calls the functions that seem unused here, and
# what sets those that seem unset; inner shells expand what stands in single quotes.
# shellcheck disable=SC1090,SC2015,SC2016,SC2034,SC2154,SC2317
set -euo pipefail

source_dir=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
scratch=$(mktemp -d)
clean_up() {
  jobs -p | xargs -r kill -KILL 2>/dev/null || true
  rm -rf --one-file-system -- "$scratch"
}
trap clean_up EXIT
chmod 755 "$scratch"
mkdir -p "$scratch/checkout/deploy" "$scratch/bin" "$scratch/home"
cp "$source_dir"/deploy/{debian13.sh,packages.txt} "$scratch/checkout/deploy/"
export PATH=$scratch/bin:$PATH HOME=$scratch/home
unset XDG_CACHE_HOME
script=$scratch/checkout/deploy/debian13.sh
. "$script"

# ---- Helpers -------------------------------------------------------------------------------------

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skip() { printf 'SKIPPED: %s\n' "$*" >&2; exit 77; }
expect_equal() { [[ $1 == "$2" ]] || fail "expected <$1>, got <$2>"; }
expect_contains() { [[ $2 == *"$1"* ]] || fail "expected <$1> within <$2>"; }

# attempt COMMAND...: runs it in a subshell; `output` (both streams) and `status` tell how it went.
attempt() {
  status=0
  output=$("$@" 2>&1) || status=$?
}

# stand_in NAME: a program of that name whose body comes on standard input.
stand_in() {
  { printf '#!/bin/bash\n'; cat; } >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}

# A host that is not Debian 13 and has all it takes to bootstrap, but for mmdebstrap itself.
other_host() {
  printf 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Old Debian"\n' >"$scratch/os-release"
  os_release=$scratch/os-release
  keyring=$scratch/os-release
  isolated=("${isolated[@]:0:3}")  # what needs no rights: dying with the script
  wanted=(one two)
  debian_sources() { echo "deb http://mirror.example/debian trixie main"; }
  apt_settings() { echo 'Acquire::Check-Date "false"'; }
  apt_install() { fail "nothing is to be installed on this host: $*"; }
}

# A stand-in for mmdebstrap that writes down its arguments and makes its target (after `trixie`).
working_mmdebstrap() {
  stand_in mmdebstrap <<END
printf '%s\n' "\$@" >>"$scratch/arguments"
echo called >>"$scratch/calls"
while [[ \$1 != trixie ]]; do shift; done
mkdir -p "\$2/etc"
END
}

# One that makes half of its target, says so in the pipe `started`, and hangs.
hanging_mmdebstrap() {
  mkfifo "$scratch/started" "$scratch/never"
  stand_in mmdebstrap <<END
exec 5>"$scratch/started"
while [[ \$1 != trixie ]]; do shift; done
mkdir -p "\$2/etc"
echo "\$2" >&5
read -r _ <>"$scratch/never"
END
}

# ---- The package list ----------------------------------------------------------------------------

test_packages_of_sections_are_sorted_and_unique() {
  package_list=$scratch/list
  printf '# words\n[runtime]\nzlib\n a  # why\n\n[build]\nb\na\n[test]\nt\n' >"$package_list"
  expect_equal $'a\nb\nzlib' "$(packages build runtime)"
  expect_equal t "$(packages test)"
}

test_unknown_section_is_refused_by_name() {
  attempt packages runtime nope
  expect_equal 1 "$status"
  expect_contains "unknown section 'nope': expected one of runtime build test oracle" "$output"
}

test_image_gets_shared_libraries_alone() {
  local package
  [[ -n $(packages runtime) ]] || fail "no runtime packages"
  for package in $(packages runtime); do
    [[ $package == lib* && $package != *-dev ]] || fail "$package is not a shared library"
  done
}

test_pytorch_is_in_the_oracle_section_alone() {
  expect_contains python3-torch "$(packages oracle)"
  [[ $(packages runtime build test) != *torch* ]] || fail "another section names PyTorch"
}

# ---- Debian 13 -----------------------------------------------------------------------------------

test_only_debian_13_is_native() {
  os_release=$scratch/os-release
  printf 'ID=debian\nVERSION_ID="13"\n' >"$os_release"
  is_debian13 || fail "Debian 13 was not recognised"
  printf 'ID=debian\nVERSION_ID="12"\n' >"$os_release"
  ! is_debian13 || fail "Debian 12 was taken for 13"
  printf 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="13"\n' >"$os_release"
  ! is_debian13 || fail "a derivative was taken for Debian"
  printf 'ID=debian\nPRETTY_NAME="Debian forky/sid"\n' >"$os_release"
  ! is_debian13 || fail "Debian without a version was taken for 13"
}

test_native_run_installs_what_is_missing_and_no_more() {
  ((EUID == 0)) || skip "needs root"
  wanted=(alpha beta gamma)
  stand_in dpkg-query <<<'printf "installed alpha\nconfig-files beta\ninstalled zeta\n"'
  stand_in apt-get <<<"printf '%s\n' \"\$*\" >>$scratch/apt"
  attempt native bash -c 'exit 7'
  expect_equal 7 "$status"
  expect_contains "install --no-install-recommends beta gamma" "$(tail -n 1 "$scratch/apt")"
}

test_native_run_leaves_a_complete_host_alone() {
  wanted=(alpha beta)
  stand_in dpkg-query <<<'printf "installed alpha\ninstalled beta\n"'
  stand_in apt-get <<<"touch $scratch/touched"
  attempt native printf '%s|' a 'b  c'
  expect_equal 'a|b  c|' "$output"
  [[ ! -e $scratch/touched ]] || fail "apt-get was called"
}

# ---- Where the root comes from -------------------------------------------------------------------

# downloaded HOST_PATH SUITE ORIGIN: what apt keeps of a source after an update.
downloaded() {
  local stem
  stem=$scratch/lists/${1//\//_}_dists_$2
  printf 'Origin: %s\nSuite: x\nCodename: %s\nDate: Sat, 06 Sep 2025 10:00:00 UTC\n' "$3" "$2" \
    >"${stem}_Release"
  : >"${stem}_main_binary-$(dpkg --print-architecture)_Packages"
}

# apt with the sources of $scratch/sources.list and $scratch/parts instead of the host's.
scratch_apt() {
  mkdir -p "$scratch/parts" "$scratch/lists/partial"
  : >"$scratch/sources.list"
  cat >"$scratch/apt.conf" <<END
Dir::Etc::SourceList "$scratch/sources.list";
Dir::Etc::SourceParts "$scratch/parts";
Dir::State::Lists "$scratch/lists";
Acquire::http::Proxy "http://proxy.example:3128";
END
  export APT_CONFIG=$scratch/apt.conf
}

test_mirror_is_read_from_one_line_sources() {
  scratch_apt
  cat >"$scratch/sources.list" <<'END'
# deb http://comment.example/debian bookworm main
deb-src http://src.example/debian bookworm main
deb http://other.example/vendor bookworm main
deb [trusted=no] http://m.example/debian bookworm main contrib
deb http://second.example/debian bookworm main
deb http://m.example/debian-security bookworm-security main
deb http://m.example/debian bookworm-backports main
END
  downloaded other.example/vendor bookworm Vendor
  downloaded m.example/debian bookworm Debian
  downloaded second.example/debian bookworm Debian
  downloaded m.example/debian-security bookworm-security Debian
  downloaded m.example/debian bookworm-backports "Debian Backports"
  expect_equal "deb http://m.example/debian/ trixie main
deb http://m.example/debian-security/ trixie-security main" "$(debian_sources)"
}

test_mirror_is_read_from_deb822_sources() {
  scratch_apt
  cat >"$scratch/parts/debian.sources" <<'END'
Types: deb deb-src
# words
URIs: http://m.example/debian
Suites: bookworm
 bookworm-updates
Components: main

Types: deb
URIs: http://off.example/debian-security
Suites: bookworm-security
Components: main
Enabled: no
END
  downloaded m.example/debian bookworm Debian
  downloaded m.example/debian bookworm-updates Debian
  downloaded off.example/debian-security bookworm-security Debian
  expect_equal "deb http://m.example/debian/ trixie main
deb http://m.example/debian/ trixie-updates main" "$(debian_sources)"
}

test_host_of_another_distribution_names_no_mirror() {
  scratch_apt
  echo "deb http://m.example/ubuntu noble main" >"$scratch/sources.list"
  downloaded m.example/ubuntu noble Ubuntu
  expect_equal "" "$(debian_sources)"
}

test_proxy_of_the_host_is_taken_over() {
  scratch_apt
  expect_contains 'Acquire::http::Proxy "http://proxy.example:3128"' "$(apt_settings)"
}

test_missing_bootstrap_tool_is_installed() {
  other_host
  keyring=$scratch/keyring
  apt_install() {
    printf '%s ' "$@" >"$scratch/installed"
    working_mmdebstrap
  }
  ensure_root "$(root_of_wanted)"
  expect_equal "mmdebstrap debian-archive-keyring " "$(<"$scratch/installed")"
}

# ---- Making the root -----------------------------------------------------------------------------

test_root_name_follows_the_package_list() {
  local one two
  wanted=(a b)
  one=$(root_of_wanted)
  expect_equal "$one" "$(root_of_wanted)"
  wanted=(a b c)
  two=$(root_of_wanted)
  [[ $one != "$two" ]] || fail "another list has the same name: $one"
  expect_contains "$HOME/.cache/encoderd/debian13-" "$one"
}

test_root_is_made_once_with_the_packages_asked_for() {
  local root
  other_host
  working_mmdebstrap
  root=$(root_of_wanted)
  ensure_root "$root"
  ensure_root "$root"
  [[ -d $root/etc && ! -e $root.partial ]] || fail "the root was not renamed into place"
  expect_equal called "$(<"$scratch/calls")"
  expect_contains "--include=one,two" "$(<"$scratch/arguments")"
  expect_contains '--aptopt=Acquire::Check-Date "false"' "$(<"$scratch/arguments")"
  expect_equal "deb http://mirror.example/debian trixie main" "$(tail -n 1 "$scratch/arguments")"
}

test_failed_bootstrap_shows_why_and_leaves_nothing() {
  local root
  other_host
  stand_in mmdebstrap <<'END'
while [[ $1 != trixie ]]; do shift; done
mkdir -p "$2/etc"
echo "E: the mirror is closed"
exit 3
END
  root=$(root_of_wanted)
  attempt ensure_root "$root"
  expect_equal 1 "$status"
  expect_contains "E: the mirror is closed" "$output"
  [[ ! -e $root && ! -e $root.partial ]] || fail "something was left behind"
}

test_bootstrap_says_that_it_is_still_at_it() {
  other_host
  heartbeat_seconds=0.01
  mkfifo "$scratch/go"
  stand_in mmdebstrap <<END
echo "I: unpacking"
read -r _ <"$scratch/go"
END
  # Ends the stand-in after the first heartbeat.
  with_heartbeat "the long step" "$scratch/log" mmdebstrap 2>&1 | {
    while read -r line && [[ $line != *"the long step: 0 s (I: unpacking)"* ]]; do :; done
    echo >"$scratch/go"
    while read -r line; do last=$line; done
    expect_contains "the long step: done in" "$last"
  }
}

# interrupted SIGNAL: the exit code of a run that gets it in the middle of a bootstrap. Returns when
# the bootstrap, which holds the pipe, is gone too.
interrupted() {
  local run code=0
  hanging_mmdebstrap
  (ensure_root "$(root_of_wanted)") 2>/dev/null &
  run=$!
  exec 6<"$scratch/started"
  read -r half <&6
  [[ -d $half ]] || fail "the stand-in made no target"
  kill "-$1" "$run"
  wait "$run" 2>/dev/null || code=$?
  ! read -r _ <&6 || fail "the pipe was not closed"
  status=$code
}

test_terminated_bootstrap_leaves_nothing() {
  other_host
  interrupted TERM
  expect_equal 143 "$status"
  [[ ! -e $half && ! -e $(root_of_wanted) ]] || fail "half a root was left behind"
}

test_killed_bootstrap_is_tidied_up_by_the_next_run() {
  other_host
  interrupted KILL
  expect_equal 137 "$status"
  [[ -d $half && ! -e $(root_of_wanted) ]] || fail "a root appeared"
  working_mmdebstrap
  wanted=(another list)
  ensure_root "$(root_of_wanted)"
  [[ -d $(root_of_wanted) && ! -e $half ]] || fail "the stale half was left"
}

test_two_runs_at_once_make_one_root() {
  local root first
  other_host
  mkfifo "$scratch/started" "$scratch/go"
  stand_in mmdebstrap <<END
echo called >>"$scratch/calls"
while [[ \$1 != trixie ]]; do shift; done
mkdir -p "\$2/etc"
echo >"$scratch/started"
read -r _ <"$scratch/go"
END
  root=$(root_of_wanted)
  (ensure_root "$root") 2>/dev/null &
  first=$!
  read -r _ <"$scratch/started"
  # The first goes on when the second has said that it waits.
  (ensure_root "$root") 2>&1 | {
    read -r line
    expect_contains "waiting for another run" "$line"
    echo >"$scratch/go"
    cat
  }
  wait "$first"
  expect_equal called "$(<"$scratch/calls")"
  [[ -d $root ]] || fail "no root was made"
}

# ---- Entering the root ---------------------------------------------------------------------------

# Runs a command line as a user without rights, whoever runs the test.
as_nobody() {
  if ((EUID == 0)); then
    setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"
  else
    "$@"
  fi
}

test_user_without_rights_is_told_what_to_do() {
  printf 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n' >"$scratch/os-release"
  attempt as_nobody bash -c '. "$1"; os_release=$2; main true' bash "$script" "$scratch/os-release"
  expect_equal 1 "$status"
  expect_contains "this host is Ubuntu 24.04 LTS" "$output"
  expect_contains "Run it as root" "$output"
}

test_environment_keeps_proxies_and_drops_the_hosts_own() {
  export https_proxy=http://p.example PIP_INDEX_URL=i GOPROXY=g ENCODERD_X='a
b' LD_LIBRARY_PATH=/host CXXFLAGS=-O0
  local kept
  kept=$(kept_environment | tr '\0' '|')
  expect_contains "https_proxy=http://p.example|" "$kept"
  expect_contains "PIP_INDEX_URL=i|" "$kept"
  expect_contains "GOPROXY=g|" "$kept"
  expect_contains $'ENCODERD_X=a\nb|' "$kept"
  [[ $kept != *LD_LIBRARY_PATH* && $kept != *CXXFLAGS* && $kept != *PATH=* ]] || fail "kept: $kept"
}

test_linked_worktree_brings_its_repository() {
  binds=()
  echo "gitdir: /elsewhere/main/.git/worktrees/mine" >"$checkout/.git"
  expect_contains $'\n/elsewhere/main/.git' "$(visible_folders)"
}

test_folder_that_the_root_lacks_is_refused() {
  ((EUID == 0)) || skip "needs root"
  other_host
  binds=()
  cd /usr
  attempt in_root true
  expect_equal 1 "$status"
  expect_contains "would not see the current folder /usr" "$output"
}

# The least root that can run bash: what is there on this host, copied with its libraries.
least_root() {
  local program file
  mkdir -p "$1"/{proc,sys,dev,tmp,etc/ssl/certs,usr/bin}
  for program in bash env cat sleep; do
    cp "$(type -P "$program")" "$1/usr/bin/"
    for file in $(ldd "$(type -P "$program")" | grep -o '/[^ ]*'); do
      mkdir -p "$1${file%/*}"
      cp -L "$file" "$1$file"
    done
  done
}

# Enters the least root as the script does, on a host that is made to look foreign.
entered_run() {
  exec bash -c '. "$1"; os_release=$2 least_root=$3; shift 3
    root_of_wanted() { printf "%s" "$least_root"; }
    main "$@"' bash "$script" "$scratch/os-release" "$scratch/root" "$@"
}

entered_test() {
  ((EUID == 0)) && unshare --mount true 2>/dev/null || skip "needs root and mount namespaces"
  other_host
  least_root "$scratch/root"
  cd "$checkout"
}

test_command_has_its_folder_its_arguments_and_its_exit_code() {
  entered_test
  attempt entered_run bash -c 'printf "%s|" "$PWD" "$HOME" "$@"; [[ -r /proc/self/stat ]] || exit 1
    [[ -c /dev/null && -d /sys/kernel ]] || exit 2; exit 42' bash 'a  b' '*'
  expect_equal "$checkout|/root|a  b|*|" "$output"
  expect_equal 42 "$status"
}

test_signal_reaches_the_command_and_no_mount_outlives_it() {
  local run mounts
  entered_test
  mounts=$(</proc/self/mounts)
  mkfifo "$checkout/ready"
  # It waits for the signal, but not for ever where that got lost.
  entered_run bash -c 'trap "exit 5" TERM; echo >ready; for i in {1..1000}; do sleep 0.01; done' \
    >"$scratch/output" 2>&1 &
  run=$!
  read -r _ <"$checkout/ready"
  expect_equal "$mounts" "$(</proc/self/mounts)"
  kill -TERM "$run"
  status=0
  wait "$run" || status=$?
  expect_equal 5 "$status"
  expect_equal "$mounts" "$(</proc/self/mounts)"
  [[ -z $(ls -A "$scratch/root/proc") ]] || fail "/proc is still mounted"
}

# ---- Options -------------------------------------------------------------------------------------

test_help_names_sections_and_cache() {
  attempt "$script" --help
  expect_equal 0 "$status"
  expect_contains "test oracle tools" "$output"
  expect_contains "$HOME/.cache/encoderd" "$output"
}

test_wrong_options_are_refused() {
  attempt "$script" --nope true
  expect_equal 1 "$status"
  expect_contains "unknown option --nope" "$output"
  attempt "$script" --with
  expect_equal 1 "$status"
  attempt "$script"
  expect_equal 1 "$status"
  expect_contains "no command given" "$output"
}

# ---- Which cases ---------------------------------------------------------------------------------

if (($#)); then
  "test_$1"
else
  for case in $(declare -F | sed -n 's/^declare -f test_//p'); do
    printf '%-72s' "$case"
    attempt bash "${BASH_SOURCE[0]}" "$case"
    case $status in
      0) echo ok ;;
      77) echo "skipped" ;;
      *) echo "FAILED"; printf '%s\n' "$output"; failed=1 ;;
    esac
  done
  exit "${failed:-0}"
fi
