#!/usr/bin/env bash
# Installs Slurm and munge from Debian where they are missing. Exit 3: this machine cannot have them.
set -euo pipefail
skip() {
  echo "slurm-check: SKIPPED: $1" >&2
  exit 3
}
[ "$(uname -s)" = Linux ] || skip "Slurm runs on Linux"
[ "$(id -u)" = 0 ] || skip "Slurm's daemons start jobs as root"
programs="munged slurmctld slurmd sbatch srun squeue scontrol scancel sinfo"
have() { command -v $programs >/dev/null && [ "$(command -v $programs | wc -l)" = "$(wc -w <<<"$programs")" ]; }
have || { command -v apt-get >/dev/null && { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge; } >&2; } || true
have || skip "slurm-wlm and munge cannot be installed here"
