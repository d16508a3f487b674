#!/usr/bin/env bash
# Watches the run until it has ended: collects the output of the hosts in FOLDER/logs, restarts the processes if a
# host is lost, recreates a preempted slice and resumes there; then fetches the result and deletes the slice, unless it is
# reserved.
#
#   launch/watch.sh [--dry-run] [--keep] [--settings FILE]
#
# `--keep` or keep=yes keeps the slice, keep=no deletes a reserved one, too. Ctrl-C only stops watching; the run continues, and can be watched again.
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

if [ -n "$dry_run" ]; then
  echo "# every $poll seconds:" && slice_state && look_all
  echo "# when a host is lost:" && ask_all stop "$traces" && again
  echo "# when the slice is preempted:" && renew
  echo "# at the end:" && "$launch/fetch.sh" "${same[@]}" && leave
  exit
fi
[ -f "$state/command" ] || die "nothing was started on $name yet; launch/run.sh starts it"
trap 'say "no longer watching; $name goes on running and costing money; see launch/watch.sh, launch/delete.sh"; exit 130' INT
follow || give_up "$reason (output of the hosts: $logs)"
say "the run has ended: $(last_line "$logs/0.log")"
"$launch/fetch.sh" "${same[@]}" || say "the result was not fetched; it is in runs=$runs"
leave
