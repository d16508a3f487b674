#!/usr/bin/env bash
# Looks after what run.sh started until it has ended: gathers what the hosts print in FOLDER/logs, starts it
# again when a host is lost, makes a preempted slice anew and goes on there; then fetches the result and deletes the
# slice.
#
#   launch/watch.sh [--dry-run] [--keep] [--settings FILE]
#
# `--keep` leaves the slice. Ctrl-C ends the watching alone; the run goes on, and can be watched again.
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

# What fails because the slice was preempted meanwhile has not failed: it is made anew once more.
again() { watched=yes "$launch/run.sh" "${same[@]}" || [ "$(slice_state)" != READY ]; }
renew() {
  "$launch/create.sh" "${same[@]}" || return
  if watched=yes "$launch/setup.sh" "${same[@]}" &&
    { [ -z "$corpus" ] || watched=yes "$launch/corpus.sh" "${same[@]}"; }; then
    again
  else
    [ "$(slice_state)" != READY ]
  fi
}

if [ -n "$dry_run" ]; then
  echo "# every $poll seconds:" && slice_state && look_all
  echo "# when a host is lost:" && ask_all stop "$traces" && again
  echo "# when the slice is preempted:" && renew
  echo "# at the end:" && "$launch/fetch.sh" "${same[@]}" && "$launch/delete.sh" "${same[@]}"
  exit
fi
[ -f "$state/command" ] || die "nothing was started on $name yet; launch/run.sh starts it"
trap 'say "no longer watched; $name goes on running, and costing: launch/watch.sh, launch/delete.sh"; exit 130' INT
follow || give_up "$reason (what the hosts printed: $logs)"
say "the run has ended: $(last_line "$logs/0.log")"
"$launch/fetch.sh" "${same[@]}" || say "the result was not fetched; it is where runs=$runs says"
if [ "$keep" = yes ]; then
  say "$name is kept and goes on costing until launch/delete.sh"
else
  "$launch/delete.sh" "${same[@]}"
fi
