#!/usr/bin/env bash
# Gets what a real cluster is made of into the folder INTO: Temporal's services, its command and versitygw from Go's module
# proxy, PostgreSQL from Debian. It needs Go and apt, no root, and installs nothing. What is there stays.
# It ends with 3, and a line that says what is missing, where something cannot be had.
set -euo pipefail
mkdir -p "$1/bin" "$1/debian"
into=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
log=$into/fetch.log
: >"$log"
missing() {
  echo "SKIPPED: $1 cannot be had; $log says why" >&2
  exit 3
}

# The server of the version in go.mod, whose other packages it has; what two programs need besides stays out of it.
server() {
  local modfile=$into/server.mod
  cp "$root/cmd/gpumux/go.mod" "$modfile" && cp "$root/cmd/gpumux/go.sum" "$into/server.sum"
  go mod edit -replace "github.com/gpumux/gpumux=$root" "$modfile"
  (cd "$root/cmd/gpumux" && GOWORK=off GOFLAGS=-tags=disable_grpc_modules go build -mod=mod -modfile="$modfile" -ldflags '-s -w' -o "$into/bin/$1" "go.temporal.io/server/cmd/$2") >>"$log" 2>&1
}
[ -x "$into/bin/temporal-server" ] || server temporal-server server || missing "Temporal's server"
[ -x "$into/bin/temporal-sql-tool" ] || server temporal-sql-tool tools/sql || missing "Temporal's tool for databases"

program() {
  [ -x "$into/bin/$1" ] || GOBIN=$into/bin go install -ldflags '-s -w' "$2" >>"$log" 2>&1 || missing "$1"
}
program versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0
# The last release whose server is 1.29, the oldest that gpumux promises.
program temporal github.com/temporalio/cli/cmd/temporal@v1.5.1

# Unpacks packages of Debian with the libraries that this machine lacks.
unpack() {
  local work
  work=$(mktemp -d)
  (cd "$work" && apt-get download -qq "$@") >>"$log" 2>&1 || { rm -rf "$work"; return 1; }
  for package in "$work"/*.deb; do dpkg -x "$package" "$into/debian"; done
  rm -rf "$work"
}

# The folder of PostgreSQL's programs: that of the PATH, of this machine, or what was unpacked.
postgres() {
  local initdb
  initdb=$(command -v initdb) || initdb=$(find /usr/lib/postgresql "$into/debian/usr/lib/postgresql" -path '*/bin/initdb' 2>/dev/null | sort -V | tail -1)
  [ -z "$initdb" ] || dirname "$(readlink -f "$initdb")"
}
if [ -z "$(postgres)" ]; then
  name=$(apt-cache depends postgresql 2>>"$log" | sed -nE 's/.*Depends: (postgresql-[0-9]+)$/\1/p' | head -1) || true
  [ -n "$name" ] && unpack "$name" "${name/-/-client-}" libpq5 || missing PostgreSQL
fi
ln -sfn "$(postgres)" "$into/postgresql"
