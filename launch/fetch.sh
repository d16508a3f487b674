#!/usr/bin/env bash
# Fetches the result of the run: the model, metrics.jsonl, curves.png and run.json, to FOLDER/result.
#
#   launch/fetch.sh [--dry-run] [--settings FILE]
#
# A run that has not ended can be fetched, too; it has no model yet.
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

[ ! -f "$state/command" ] || eval "words=($(cat "$state/command"))"
workdir=$(workdir_of ${words[@]+"${words[@]}"})
[ -z "$dry_run" ] || workdir=${workdir:-runs/WORKDIR}
[ -n "$workdir" ] || die "the command on $name has no --workdir, so there is no result"
mkdir -p "$state/result"
ask 0 send "$workdir" >"$scratch/result.tar" 2>"$logs/fetch.log" </dev/null ||
  die "the result could not be fetched: $(last_line "$logs/fetch.log")"
[ -n "$dry_run" ] && exit
tar -xf "$scratch/result.tar" -C "$state/result"
say "the result is in $state/result"
