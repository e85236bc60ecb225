#!/bin/bash
# A map on all nodes of a job. Its first node has the server too:
#
#   sbatch --nodes=4 --gpus-per-node=8 --time=4:00:00 map.sh embed.py:embed --in items.jsonl --out vectors.jsonl
#
# A minute or two before its time limit, and when it is preempted or a node fails, it waits in
# the queue again and goes on with what has no result.
#SBATCH --job-name=gpumux
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
map='' late=''
trap 'kill -TERM $map' TERM
trap 'late=1; kill -TERM $map' USR1
gpumux=${GPUMUX_BINARY:-gpumux}
# Slots and threads are for these cores, also where the cluster does not confine the job.
export GOMAXPROCS=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-1}}
n=$((${SLURM_JOB_NUM_NODES:-1} - 1))
if [ $n -gt 0 ]; then
  if [[ " $*" == *" --workers"* ]]; then
    echo "map.sh: --workers goes with a job of one node; on more nodes the map has a worker on each" >&2
    exit 2
  fi
  set -- --workers "exec srun --nodes=$n --ntasks=$n --relative=1 --cpus-per-task=$GOMAXPROCS --kill-on-bad-exit=0 \
    --output=gpumux-$SLURM_JOB_ID-%t.log --open-mode=append '$gpumux' worker -f {}" "$@"
fi
"$gpumux" map --local "$@" &
map=$!
until wait $map; code=$?; ! kill -0 $map 2>/dev/null; do :; done
if [ -n "$late" ] && [ $code -eq 130 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
# Of a map that was killed what started its workers still ends them.
if [ $code -gt 130 ]; then sleep 5; fi
exit $code
