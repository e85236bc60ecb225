#!/bin/sh
# Of the Debian package ("remove") and of the RPM (0): nothing runs a program that is gone.
set -e
case "$1" in
  remove | 0)
    if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
      systemctl disable --now gpumux-worker
    fi
    ;;
esac
