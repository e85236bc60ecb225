#!/usr/bin/env bash
# Prints the licenses of Go and of all modules in the program, or where to look for one.
set -euo pipefail
cd "$(dirname "$0")/../.."
shopt -s nocaseglob nullglob
printf '==== Go %s\n\n' "$(go env GOVERSION)"
cat "$(go env GOROOT)/LICENSE"
go list -deps -f '{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}' ./cmd/gpumux | sort -u |
  while read -r path version dir; do
    if [[ $path == github.com/gpumux/* || $dir == "$PWD"/* ]]; then continue; fi
    files=("$dir"/{LICENSE,LICENCE,COPYING,NOTICE}*)
    printf '\n==== %s %s\n\n' "$path" "$version"
    if ((${#files[@]})); then cat "${files[@]}"; else echo "The module has no file with its license: see https://$path"; fi
  done
