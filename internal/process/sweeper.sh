#!/bin/sh
# Kills every descendant of a worker's task processes once the worker is gone, however it died. The kernel kills the task
# processes themselves at that moment. Standard input ends with the worker; its lines are folders to remove then.
#
# Arguments: the digits that the marks of these processes begin with (see mark_linux.go), 0 for none; the worker's own process
# group.
trap '' TERM INT HUP
program=$1 own=$2

marked() {
  grep -lE "^Max file locks +${program}[0-9]{6} " /proc/[0-9]*/limits 2>/dev/null
}

# Kills a process with its group, so that none gets away by forking. Fails where it has ended already and is not reaped. Some
# shells take no -- after kill -9; to all of them -0 and -1 are not groups.
slay() {
  pid=${1#/proc/} pid=${pid%/*}
  read -r stat 2>/dev/null <"/proc/$pid/stat" || return 1
  state=${stat##*) }
  group=${state#* * } group=${group%% *}
  [ "$group" = "$own" ] || [ "$group" -le 1 ] || kill -9 "-$group" 2>/dev/null
  case $state in [ZX]*) return 1 ;; esac
  kill -9 "$pid" 2>/dev/null
  return 0
}

shift $#
while read -r folder; do
  set -- "$@" "$folder"
done
# A process may fork while it is being found: only several looks that find nothing are the end.
looks=0 quiet=0
while [ $looks -lt 200 ] && [ $quiet -lt 5 ]; do
  looks=$((looks + 1)) quiet=$((quiet + 1))
  for file in $(marked); do
    slay "$file" && quiet=0
  done
done
[ $# -eq 0 ] || rm -rf -- "$@"
