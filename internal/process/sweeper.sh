#!/bin/sh
# Kills every descendant of a worker's task processes once the worker is gone, however it died. The kernel kills the task
# processes themselves at that moment. Standard input ends with the worker; its lines are folders to remove then.
#
# Argument: the digits that the marks of these processes begin with (see mark_linux.go).
trap '' TERM INT HUP
program=$1
shift
while read -r folder; do
  set -- "$@" "$folder"
done
# A process may fork while it is being found. One that has ended is listed until it is reaped.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  for file in $(grep -lE "^Max file locks +${program}[0-9]{6} " /proc/[0-9]*/limits 2>/dev/null); do
    pid=${file#/proc/}
    kill -9 "${pid%/*}" 2>/dev/null
  done
done
[ $# -eq 0 ] || rm -rf -- "$@"
