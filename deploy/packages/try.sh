#!/usr/bin/env bash
# Tries what `make dist` made, as far as this machine can: it unpacks, runs and reads the archive and the Debian package for this machine,
# and reads the formula. It leaves nothing on the machine.
#   try.sh NAME NUMBER   the version in the names of archives, and of Debian packages
set -euo pipefail
cd "$(dirname "$0")/../../dist"
name=$1 number=$2
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
export XDG_STATE_HOME=$there/state

fail() { echo "$*" >&2; exit 1; }

# runs PROGRAM: it says its version and maps.
runs() {
  "$1" version | grep -F "gpumux ${name}" >/dev/null || "$1" version | grep -F "gpumux v${name}" >/dev/null || fail "$1 says another version"
  [[ $("$1" map --local --range 0:3 --out - --quiet -- cat | tr '\n' ' ') == \
    '{"index":0,"value":0} {"index":1,"value":1} {"index":2,"value":2} ' ]] || fail "$1 maps wrongly"
}

sha256sum --quiet -c SHA256SUMS
system=$(go env GOHOSTOS)-$(go env GOHOSTARCH)
if [[ -e gpumux-$name-$system.tar.gz ]]; then
  tar -C "$there" -xzf "gpumux-$name-$system.tar.gz"
  runs "$there/gpumux-$name-$system/gpumux"
  bash -n "$there/gpumux-$name-$system/completions/gpumux.bash"
  echo "the archive for $system unpacks, runs and maps"
fi
package=gpumux_${number}_$(go env GOHOSTARCH).deb
if [[ -e $package ]]; then
  root=$there/root
  mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info"
  touch "$root/var/lib/dpkg/status"
  dpkg --root="$root" --force-not-root --force-script-chrootless --force-depends --log=/dev/null -i "$package" >/dev/null 2>"$there/said" ||
    fail "$(cat "$there/said")"
  runs "$root/usr/bin/gpumux"
  grep -q '^ExecStart=/usr/bin/gpumux worker -f /etc/gpumux/worker.yaml$' "$root/usr/lib/systemd/system/gpumux-worker.service" ||
    fail "the unit starts something else"
  [[ -r $root/etc/gpumux/worker.yaml ]] || fail "the unit has no file to read"
  dpkg --root="$root" --force-not-root --force-script-chrootless --log=/dev/null --purge gpumux >/dev/null 2>&1
  [[ -z $(find "$root" -path "$root/var" -prune -o -type f -print) ]] || fail "the package leaves files behind"
  echo "the Debian package installs, runs, maps and goes without a trace"
fi
if [[ -e gpumux.rb ]]; then
  if command -v ruby >/dev/null; then
    ruby -c gpumux.rb >/dev/null
    echo "the formula is Ruby"
  else
    echo "the formula was not checked: no ruby here"
  fi
fi
