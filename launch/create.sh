#!/usr/bin/env bash
# Creates the slice of settings.sh and waits until it is ready. A slice that is already ready is left as it is.
#
#   launch/create.sh [--dry-run] [--settings FILE]
#
# If this fails, or on Ctrl-C, the request and the slice are deleted.
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

keep=no # a request, or a slice that was never ready, is not worth keeping

refused() {
  local error
  error=$(grep -m 1 ERROR "$1" || last_line "$1")
  case $error in
    *[Qq]uota*) give_up "quota refused $type in $zone ($error); request more quota on the project's quota page, or use a smaller slice" ;;
    *capacity* | *RESOURCE_EXHAUSTED* | *"resources available"*)
      give_up "no capacity for $type in $zone ($error); set queue=yes to wait for it, or use another zone"
      ;;
    *) give_up "$name could not be created ($error)" ;;
  esac
}

wait_in_queue() {
  local before='' now
  while :; do
    now=$(request_state)
    case $now in
      ACTIVE) return ;;
      FAILED | SUSPENDING | SUSPENDED | NONE)
        tpus queued-resources describe "$name" "--format=value(state.failedData.error.message)" >"$scratch/why" 2>&1 || true
        [ -s "$scratch/why" ] || echo "the request is $now" >"$scratch/why"
        refused "$scratch/why"
        ;;
    esac
    [ "$now" = "$before" ] || say "$name: $now"
    before=$now
    sleep "$poll"
  done
}

if [ -n "$dry_run" ]; then
  slice_state
else
  now=$(slice_state)
  case $now in
    READY) say "$name exists already" && exit ;;
    UNKNOWN) die "the state of $name is unknown: $(last_line "$scratch/described")" ;;
    NONE | CREATING | STARTING) ;;
    *) say "$name is $now: deleting it" && remove && now=NONE ;;
  esac
fi
trap 'trap - INT TERM; give_up "interrupted"' INT TERM
if [ "$queue" = yes ]; then
  case $([ -n "$dry_run" ] || request_state) in
    ACCEPTED | WAITING_FOR_RESOURCES | PROVISIONING) waits=yes ;;
    ACTIVE) [ "$now" = NONE ] && remove || waits=yes ;;
    FAILED | SUSPENDING | SUSPENDED) remove ;;
  esac
  if [ -z "${waits:-}" ]; then
    tpus queued-resources create "$name" "--node-id=$name" "--accelerator-type=$type" "--runtime-version=$software" \
      "--valid-until-duration=$patience" ${flags[@]+"${flags[@]}"} >"$scratch/create" 2>&1 || refused "$scratch/create"
  fi
  [ -n "$dry_run" ] && request_state && exit
  wait_in_queue
else
  if [ "${now:-NONE}" = NONE ]; then
    tpus tpu-vm create "$name" "--accelerator-type=$type" "--version=$software" ${flags[@]+"${flags[@]}"} \
      >"$scratch/create" 2>&1 || refused "$scratch/create"
  fi
  [ -z "$dry_run" ] || exit 0
fi
for ((look = 0; look < 60; look++)); do
  now=$(slice_state)
  case $now in
    READY) say "$name is ready: $chips chips on $hosts hosts" && exit ;;
    CREATING | STARTING | UNKNOWN) sleep "$poll" ;;
    *) break ;;
  esac
done
give_up "$name was created but is $now"
