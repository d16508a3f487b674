#!/usr/bin/env bash
# Runs `bert-jax VERB ...` as N processes on this machine, started and watched like those on the N hosts of a slice:
# their output is collected in runs/local_pod/logs, the output of process 0 is also printed, and if a process is lost,
# all processes restart from the newest checkpoint.
#
#   launch/local_pod.sh N [--dry-run] train --config configs/pretrain.py:tiny ... --workdir runs/tiny
#
# On Ctrl-C or SIGTERM the processes save and stop, and the exit code is 130 or 143. LOCAL_POD names a folder to use
# instead of runs/local_pod, JAX_PLATFORMS a device instead of cpu.
set -euo pipefail
launch=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=launch/hosts.sh
source "$launch/hosts.sh"
case ${1:-} in
  '' | 0* | *[!0-9]*) die "the number of processes comes first, not '${1:-}' (see $0 --help)" ;;
esac
hosts=$1 dry_run=
shift
[ "${1:-}" != --dry-run ] || { dry_run=yes && shift; }
case ${1:-} in
  --help | -h) usage && exit ;;
  '' | -*) die "the verb is missing before '${1:-}' (see $0 --help)" ;;
esac
verb=("$@") pod=${LOCAL_POD:-$launch/../runs/local_pod} poll=1 restarts=3 traces=process shows_output=yes
logs=$pod/logs
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
mkdir -p "$logs"

ask() { # INDEX WORD...; each process has its own folder
  local index=$1 word=$2
  shift 3
  if [ -n "$dry_run" ]; then
    shown "$launch/on_host.sh" "$word" "$pod/$index" "$@" >&3
  else
    "$launch/on_host.sh" "$word" "$pod/$index" "$@"
  fi
}
exec 3>&1

slice_state() { echo READY; }
renew() { false; }
again() {
  # Use another port each time: the previous one may not be free yet.
  start_all "localhost:$((20000 + RANDOM % 12000))" "${verb[@]}" ||
    die "the processes could not be started: $(last_line "$logs/start-0.log")"
}

if [ -n "$dry_run" ]; then
  again && look_all && ask_all stop "$traces"
  exit
fi
say "starting $hosts processes of bert-jax $1; importing and compiling take a minute or more; output in $logs"
end() { ask_all stop "$traces"; look_all; say "stopped; $(last_line "$logs/0.log")"; exit "$1"; }
trap 'end 130' INT
trap 'end 143' TERM
again
follow || die "$reason (output of the processes: $logs)"
say "the run has ended: $(last_line "$logs/0.log")"
