#!/usr/bin/env bash
# Starts `bert-jax VERB ...` on all hosts in the background; without a verb, it starts the last command again.
#
#   launch/run.sh [--dry-run] [--keep] [--settings FILE] train --config configs/pretrain.py:base \
#       --config.data.corpora=corpus --workdir runs/base
#
# Paths are paths on the hosts: ./corpus is the corpus, ./runs outlives the slice. A host that is already running a
# process is left alone. launch/watch.sh watches the run.
set -euo pipefail
takes_verb=yes
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

workdir=$(workdir_of ${words[@]+"${words[@]}"})
case $workdir in
  '' | runs/* | ./runs/*) ;;
  *) die "--workdir $workdir is not in runs/, which outlives the slice; name --workdir runs/..." ;;
esac
if [ ${#words[@]} -gt 0 ]; then
  [ -n "$dry_run" ] || printf '%q ' "${words[@]}" >"$state/command"
elif [ -n "$dry_run" ] && [ ! -f "$state/command" ]; then
  words=(VERB ...)
else
  [ -f "$state/command" ] || die "nothing was started on $name yet; the verb is missing (see $0 --help)"
  eval "words=($(cat "$state/command"))"
fi

find_coordinator
if ! start_all "$coordinator" "${words[@]}"; then
  for index in $failed; do
    say "host $index did not start: $(last_line "$logs/start-$index.log")"
  done
  give_up "the run could not be started on $(wc -w <<<"$failed" | tr -d ' ') of $hosts hosts"
fi
[ -n "$dry_run" ] || say "started on $hosts hosts; launch/watch.sh watches the run"
