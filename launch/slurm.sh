#!/usr/bin/env bash
# An example for Slurm: one process per GPU, on two nodes with eight GPUs each.
#
#   sbatch launch/slurm.sh train --config configs/pretrain.py:base --config.data.corpora=corpus --workdir runs/base
#   launch/slurm.sh --dry-run train ...
#
# Submit it from this repository's folder, on a file system that all nodes share, with .venv created there by
# `bash launch/environment.sh cuda`. Before its time limit the run is told to save, and the job is requeued.
#SBATCH --job-name=bert
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}" # Slurm runs a copy of this file from elsewhere
# shellcheck disable=SC2034
script=launch/slurm.sh
# shellcheck source=launch/hosts.sh
source launch/hosts.sh

dry_run=
[ "${1:-}" != --dry-run ] || { dry_run=yes && shift; }
case ${1:-} in
  '' | -*) die "the verb is missing before '${1:-}' (see $script --help)" ;;
esac
[ -n "${SLURM_JOB_ID:-$dry_run}" ] || die "no job of Slurm runs this; start it with sbatch $script, or with --dry-run"
PATH=$PATH:$PWD/.venv/bin
# If a process fails, the others end by themselves: told to end by Slurm, they would look like those of a run that saved.
ends=(--kill-on-bad-exit=0 --wait=600)
if [ -n "$dry_run" ]; then
  shown srun "${ends[@]}" bert-jax "$@"
  echo "# and if it was told to stop then:"
  shown scontrol requeue JOB
  exit
fi
code=0
srun "${ends[@]}" bert-jax "$@" || code=$?
if [ "$code" = 143 ]; then
  say "told to stop; requeued"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
