#!/usr/bin/env bash
# NVIDIA's own libraries and MPS daemon of several driver series, from Debian's non-free section, each unpacked into a
# folder INTO/<series> with lib and bin. It needs apt and Debian's keys, no root, and installs nothing.
set -euo pipefail
into=$1
packages=(libnvidia-ml1 libcuda1 nvidia-cuda-mps nvidia-smi)
# What this machine's own apt has for Debian is where the other suites are, too.
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | grep -v security | head -1) || true
if [ -z "$uri" ]; then
  uri=$(sed -nE 's/^(URIs:|deb) *(\[[^]]*\] *)?([a-z]+:[^ ]+).*/\3/p' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | grep -v security | head -1) || true
fi
[ -n "$uri" ] || { echo "SKIPPED: this machine's apt knows no archive of Debian" >&2; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial,deb}
touch "$work/state/status"
for suite in bullseye bookworm trixie experimental; do
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite non-free"
done >"$work/etc/sources.list"
cat >"$work/apt.conf" <<CONF
Dir::Etc "$work/etc";
Dir::Etc::SourceList "$work/etc/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
APT::Sandbox::User "";
CONF
export APT_CONFIG=$work/apt.conf
apt-get update -qq >"$work/log" 2>&1 || true
versions=$(apt-cache madison libcuda1 | awk '{print $3}')
[ -n "$versions" ] || { echo "SKIPPED: Debian's non-free section cannot be reached" >&2; tail -3 "$work/log" >&2; exit 3; }

for version in $versions; do
  series=${version%%.*}
  [ "$series" -lt 525 ] || [ -e "$into/$series/ready" ] && continue
  rm -rf "$work/deb" "$work/root" && mkdir -p "$work/deb" "$work/root" "$into/$series"/{lib,bin}
  (cd "$work/deb" && apt-get download -qq "${packages[@]/%/=$version}")
  for package in "$work"/deb/*.deb; do dpkg -x "$package" "$work/root"; done
  find "$work/root/usr/lib" -name 'lib*.so.*' \( -type f -o -type l \) -exec cp -a {} "$into/$series/lib/" \;
  find "$work/root/usr" -path '*bin/*' -name 'nvidia-cuda-mps-*' -type f -exec cp -a {} "$into/$series/bin/" \;
  find "$work/root/usr/lib" "$work/root/usr/bin" -name 'nvidia-smi' -type f -exec cp -a {} "$into/$series/bin/" \;
  # Debian links the libraries' names by alternatives, which are not there in a folder.
  for name in libnvidia-ml libcuda; do
    file=$(cd "$into/$series/lib" && ls $name.so.[0-9]*.* | head -1)
    ln -sf "$file" "$into/$series/lib/$name.so.1"
  done
  touch "$into/$series/ready"
  echo "$version: $into/$series" >&2
done
