#!/bin/bash
# Workers of a map as an array of N jobs, which end with the map or with this script:
#
#   gpumux map embed.py:embed --in items.jsonl --local --no-worker \
#     --workers 'workers.sh {} 4 --gpus=1 --time=4:00:00 --partition=preempt'
#
# What follows N is for sbatch. Jobs of the same map that are there already count. As many as N
# that have ended are replaced, such as by those on a node where no job starts.
set -u
if [ $# -lt 2 ] || [ ! -f "$1" ] || ! [ "$2" -gt 0 ] 2>/dev/null; then
  echo "usage: workers.sh FILE N [sbatch's options]: FILE is that of a map's workers, N how many there are" >&2
  exit 2
fi
file=$1 n=$2
shift 2
unset ${!SQUEUE_@}
map=$(dirname "$(readlink -f "$file")")
name=$(basename "$map")
name=gpumux-${name//[^A-Za-z0-9._-]/_}-$(cksum <<<"$map" | cut -d' ' -f1) user=$(id -un)
scripts=$(dirname "$(readlink -f "$0")")
queued() { squeue --user="$user" --noheader --array --name="$name" --format='%T (%r),'; }
submit() {
  local count=$1
  shift
  sbatch --output="${map//%/%%}/worker-%A-%a.log" "$@" --quiet --job-name="$name" --array="1-$count" "$scripts/worker.sh" "$file"
}
trap 'scancel --quiet --user="$user" --name="$name"' EXIT
trap 'exit 0' TERM INT
spare=$((2 * n)) said='' away=0
for ((i = 0; ; i++)); do
  # The map is over, or its command is gone, with which standard input ends.
  if [ -e "$map/temporal.toml" ]; then away=0; else away=$((away + 1)); fi
  [ $away -lt 3 ] || exit 0
  [ $i = 0 ] || read -r -t 0.5 || [ $? -gt 128 ] || exit 0
  ((i == 0 || i % 20 == 3)) || continue # Slurm is asked after two seconds, then every ten
  list=$(queued) || continue            # it does not answer
  missing=$((n - $(grep -c . <<<"$list")))
  if [ $missing = "$n" ] && [ $spare = 0 ]; then
    tail -qn 1 "$map"/worker-*.log >&2
    echo "all workers have ended; their logs: $map/worker-*.log" >&2
    exit 1
  fi
  if [ $missing -gt $spare ]; then missing=$spare; fi
  if [ $missing -gt 0 ]; then
    submit $missing "$@" || { [ $i -gt 0 ] && continue; } || exit 1
  fi
  spare=$((spare - missing))
  now=$(sort <<<"$list" | uniq -c | sed 's/ (None)//' | tr -s ' \n' ' ')
  if [ -n "$list" ] && [ "$now" != "$said" ]; then echo "note: workers in Slurm:${now%, }" >&2; fi
  said=$now
done
