#!/bin/bash
# A worker of a map on one node, with FILE, which the map names; several are an array:
#
#   sbatch --array=1-4 --gpus=1 --time=4:00:00 worker.sh FILE
#
# A minute or two before its time limit, and when it is preempted, it hands back what runs and
# waits in the queue again. It ends with its map, or when the map's server is away for ten minutes.
#SBATCH --job-name=gpumux-worker
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
worker='' late=''
trap 'kill -TERM $worker' TERM
trap 'late=1; kill -TERM $worker' USR1
gpumux=${GPUMUX_BINARY:-gpumux}
server=$(dirname "$1")/temporal.toml
export GOMAXPROCS=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}
"$gpumux" worker -f "$1" &
worker=$!
(
  away=0
  while sleep "${GPUMUX_LOOK_EVERY:-60}"; do
    if "$gpumux" ls --connect "$server" >/dev/null 2>&1; then away=0; else away=$((away + 1)); fi
    if [ $away -eq 10 ]; then echo "the map's server has been away for ten minutes" >&2; kill -TERM $worker; fi
  done
) &
watch=$!
until wait $worker; code=$?; ! kill -0 $worker 2>/dev/null; do :; done
kill $watch
if [ -n "$late" ] && [ -e "$server" ]; then
  # One task of an array has the number of the whole.
  if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then SLURM_JOB_ID=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
