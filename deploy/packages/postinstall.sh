#!/bin/sh
# Of the Debian package ("configure") and of the RPM (1; 2 after an upgrade): the user of the service. The service starts when it is told
# to, or again after an upgrade if it ran.
set -e
case "$1" in
  configure | 1 | 2)
    [ -z "$DPKG_ROOT" ] || exit 0
    getent passwd gpumux >/dev/null ||
      useradd --system --user-group --home-dir /var/lib/gpumux --shell /usr/sbin/nologin gpumux
    if [ -d /run/systemd/system ]; then
      systemctl daemon-reload
      systemctl try-restart gpumux-worker
    fi
    ;;
esac
