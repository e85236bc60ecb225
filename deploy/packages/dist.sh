#!/usr/bin/env bash
# What `make dist` does after the wheel: archives, Debian packages, a Homebrew formula and SHA256SUMS in dist/. Then it tries what this
# machine can run of them. It reads these variables:
#   VERSION   as git describes it
#   TARGETS   such as "linux/amd64 darwin/arm64"
#   RELEASES  the address of the folder that will hold the archives, for the formula
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${VERSION:?} targets=${TARGETS:?} releases=${RELEASES:?}
name=${version#v}
# As for the wheel: any commit that is no release comes before all releases.
number=$name
[[ $number =~ ^[0-9]+(\.[0-9]+)*$ ]] || number=0+$(tr -cs 'a-zA-Z0-9\n' . <<<"$version")
stamp=$(git log -1 --format=%ct)
host=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist
rm -f dist/gpumux-*.tar.gz dist/gpumux_*.deb dist/gpumux.rb dist/SHA256SUMS

# compiler OS/ARCH: the C compiler through which NVML is reached, on Linux alone; none where this machine has none.
compiler() {
  case $1 in
    "$host") command -v "${CC:-gcc}" ;;
    linux/arm64) command -v aarch64-linux-gnu-gcc ;;
    linux/amd64) command -v x86_64-linux-gnu-gcc ;;
    *) false ;;
  esac
}

# build OS/ARCH INTO
build() {
  local cgo=0 cc=
  if [[ $1 == linux/* ]]; then
    if cc=$(compiler "$1"); then
      cgo=1
    else
      echo "$1 is built without NVML, so for its CPU alone: this machine has no C compiler for it (Debian: gcc-aarch64-linux-gnu)"
    fi
  fi
  (GOOS=${1%/*} GOARCH=${1#*/} CGO_ENABLED=$cgo CC=$cc \
    go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$2" ./cmd/gpumux)
}

# packed FOLDER: the folder as an archive with nothing of this machine in it.
packed() {
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$stamp" -C "$(dirname "$1")" -cf - "$(basename "$1")" | gzip -n
}

# licenses: those of Go and of all modules in the program, or where to look for one.
licenses() (
  shopt -s nocaseglob nullglob
  printf '==== Go %s\n\n' "$(go env GOVERSION)" && cat "$(go env GOROOT)/LICENSE"
  (go list -deps -f '{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}' ./cmd/gpumux) | sort -u |
    while read -r path version dir; do
      if [[ $path == github.com/gpumux/* ]]; then continue; fi
      files=("$dir"/{LICENSE,LICENCE,COPYING,NOTICE}*)
      printf '\n==== %s %s\n\n' "$path" "$version"
      if ((${#files[@]})); then cat "${files[@]}"; else echo "The module has no file with its license: see https://$path"; fi
    done
)

# archive OS/ARCH
archive() {
  local into=$work/gpumux-$name-${1/\//-}
  mkdir "$into"
  cp -R LICENSE README.md "$work/THIRD-PARTY-LICENSES" "$work/completions" "$into/"
  if [[ $1 == linux/* ]]; then
    install -D -t "$into/slurm" deploy/slurm/*
    install -m 644 -D -t "$into/systemd" deploy/systemd/* deploy/worker.yaml deploy/worker-gpu.yaml
  fi
  build "$1" "$into/gpumux"
  packed "$into" >"dist/$(basename "$into").tar.gz"
}

# debian ARCH: from the archive's folder.
debian() {
  local from=$work/gpumux-$name-linux-$1 root=$work/debian-$1
  mkdir -p "$root/DEBIAN"
  install -D -t "$root/usr/bin" "$from/gpumux"
  install -m 644 -D "$work/completions/gpumux.bash" "$root/usr/share/bash-completion/completions/gpumux"
  install -D -t "$root/usr/share/gpumux/slurm" "$from"/slurm/*
  install -m 644 -D -t "$root/usr/share/zsh/vendor-completions" "$work/completions/_gpumux"
  install -m 644 -D -t "$root/usr/share/fish/vendor_completions.d" "$work/completions/gpumux.fish"
  install -m 644 -D LICENSE "$root/usr/share/doc/gpumux/copyright"
  install -m 644 -t "$root/usr/share/doc/gpumux" "$work/THIRD-PARTY-LICENSES"
  install -m 644 -D -t "$root/usr/share/doc/gpumux/examples" deploy/worker.yaml deploy/worker-gpu.yaml
  install -m 644 -D deploy/worker-gpu.yaml "$root/etc/gpumux/worker.yaml"
  install -m 600 -D -t "$root/etc/gpumux" deploy/systemd/environment
  install -d "$root/usr/lib/systemd/system"
  sed 's,/usr/local/bin/,/usr/bin/,' deploy/systemd/gpumux-worker.service >"$root/usr/lib/systemd/system/gpumux-worker.service"
  install -m 755 -t "$root/DEBIAN" deploy/packages/postinst deploy/packages/prerm
  printf '%s\n' /etc/gpumux/worker.yaml /etc/gpumux/environment >"$root/DEBIAN/conffiles"
  sed -e "s/@VERSION@/$number/" -e "s/@ARCH@/$1/" -e "s/@SIZE@/$(du -sk "$root/usr" | cut -f1)/" deploy/packages/control >"$root/DEBIAN/control"
  SOURCE_DATE_EPOCH=$stamp dpkg-deb --root-owner-group --build "$root" "dist/gpumux_${number}_$1.deb" >/dev/null
}

# formula: where there is an archive for each system that it knows.
formula() {
  local text
  text=$(sed -e "s/@VERSION@/$name/" -e "s,@RELEASES@,$releases," deploy/packages/gpumux.rb.in)
  for target in $targets; do
    text=${text//"@${target/\//-}@"/$(sha256sum "dist/gpumux-$name-${target/\//-}.tar.gz" | cut -d' ' -f1)}
  done
  if [[ $text == *'"@'* ]]; then
    echo "no formula: it needs the archives of all systems"
    return
  fi
  echo "$text" >dist/gpumux.rb
}

mkdir "$work/completions"
for shell in bash:gpumux.bash zsh:_gpumux fish:gpumux.fish; do
  go run ./cmd/gpumux-worker completion "${shell%:*}" >"$work/completions/${shell#*:}"
done
licenses >"$work/THIRD-PARTY-LICENSES"
for target in $targets; do
  echo "building for $target"
  archive "$target"
  if [[ $target == linux/* ]] && command -v dpkg-deb >/dev/null; then
    debian "${target#*/}"
  fi
done
formula
(cd dist && sha256sum gpumux* >SHA256SUMS && ls -l)
deploy/packages/try.sh "$name" "$number"
