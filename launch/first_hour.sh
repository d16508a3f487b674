#!/usr/bin/env bash
# The first hour on a slice: creates the slice of settings.sh, checks its hosts, takes 100 steps of a config twice, the
# second time with a killed process and a preemption, compares everything with what preflight predicts, and deletes the
# slice. It first says what that costs, by `price` in settings.sh; after an hour it ends in any case. A slice that is
# reserved is kept, as is any with `--keep` or keep=yes; keep=no deletes a reserved one, too.
#
#   launch/first_hour.sh [--dry-run] [--keep] [--settings FILE] train --config configs/pretrain.py:base \
#       --config.data.corpora=corpus
#
# The result is a page of pass and fail, with what to do: FOLDER/first-hour/page.md here, and runs/first-hour-DATE/page.md
# on the storage of the slice. The exit code is 0 if everything passed. Needs `pip install -e '.[preflight]'` here, in
# .venv or for the PYTHON=/path/to/python that is set.
set -euo pipefail
takes_verb=yes
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

python=${PYTHON:-$launch/../.venv/bin/python}
[ -x "$python" ] || python=python3
flags=("${words[@]:1}")
[ "${words[0]:-}" = train ] || die "name the run as for launch/run.sh, without --workdir (see $0 --help)"
[ -z "$(workdir_of "${flags[@]}")" ] || die "leave --workdir out: the runs are written to runs/first-hour-DATE"

hour=runs/first-hour-$(date +%Y%m%d-%H%M) page=$state/first-hour
# A line of metrics every 5 steps, and a checkpoint every 30: first_hour.py and `strike` below count on both.
steps=(--config.steps=100 --config.optimizer.warmup_steps=0.1 --config.log.every=5 --config.checkpoints.every=30)
[ "$poll" -le 10 ] || poll=10

failed_step() {
  say "$*"
  echo "$*" >>"$page/failures"
}

# shellcheck disable=SC2329 # called by at_once
check_one() { # INDEX
  ask "$1" check "$hour" "$coordinator" "$hosts" "$1" "${flags[@]}" >"$page/check-$1.log" 2>"$page/check-$1.error"
}

strike_one() { # INDEX SIGNAL STEP
  ask "$1" strike "$traces" "$2" "$hour/interrupted" "$3" >"$logs/strike-$1.log" 2>&1
}

# Runs 100 steps to the end. The processes are restarted if one of them is lost.
take_steps() { # NAME
  local profile=()
  [ "$1" = interrupted ] || profile=(--config.log.profile=20)
  watched=yes "$launch/run.sh" "${same[@]}" train "${flags[@]}" "${steps[@]}" ${profile[@]+"${profile[@]}"} \
    --workdir "$hour/$1" || return
  if [ "$1" = interrupted ]; then
    strike_one $((hosts - 1)) KILL 30 </dev/null >/dev/null 2>&1 3>&- &
    at_once strike_one TERM 60 >/dev/null 2>&1 3>&- &
  fi
  follow
}

output() { cat "$logs/before/0.log" "$logs/0.log" 2>/dev/null || true; }

if [ -n "$dry_run" ]; then
  shown "$python" -m bert_jax.pod.first_hour predict "$type" "$price" "${flags[@]}"
  for script in create setup ${corpus:+corpus}; do "$launch/$script.sh" "${same[@]}"; done
  mkdir -p "$page" && find_coordinator && at_once check_one
  for run in whole interrupted; do
    "$launch/run.sh" "${same[@]}" train "${flags[@]}" "${steps[@]}" --workdir "$hour/$run"
  done
  strike_one $((hosts - 1)) KILL 30 && at_once strike_one TERM 60
  ask 0 compare "$hour" && ask 0 keep "$hour/page.md" && leave
  exit
fi

rm -rf "$page" && mkdir -p "$page"
say "predicting what the slice will do"
"$python" -m bert_jax.pod.first_hour predict "$type" "$price" "${flags[@]}" >"$page/predicted.json" ||
  die "nothing was created; the message above says why"
[ "$keep" != yes ] || say "then the slice is $kept"
"$launch/create.sh" "${same[@]}"
trap 'trap - INT TERM; give_up "stopped by a signal, or because the hour is over"' INT TERM
# shellcheck disable=SC2046
trap 'rm -rf "$scratch"; kill $(jobs -p) 2>/dev/null || true' EXIT
(
  trap 'kill "$!"; exit' TERM
  sleep 3600 &
  wait "$!"
  kill -TERM $$ # bash waits for the command that it runs
  pkill -TERM -P $$
) </dev/null >/dev/null 2>&1 3>&- &
"$launch/setup.sh" "${same[@]}"
[ -z "$corpus" ] || "$launch/corpus.sh" "${same[@]}"

find_coordinator
say "checking versions, devices, kernels, input and storage of $hosts hosts"
at_once check_one ||
  for index in $failed; do
    failed_step "host $index could not be checked: $(last_line "$page/check-$index.error")"
  done
before=0
for run in whole interrupted; do
  before=$(output | wc -c)
  say "100 steps ($run)"
  take_steps "$run" || failed_step "the run \"$run\" did not end: ${reason:-it could not be started}"
done
output | tail -c "+$((before + 1))" | grep -o 'resuming at step [0-9,]*' >"$page/resumed" || true
ask 0 compare "$hour" >"$page/runs.json" 2>"$logs/compare.log" </dev/null ||
  failed_step "the runs could not be compared: $(last_line "$logs/compare.log")"
[ -s "$page/runs.json" ] || rm -f "$page/runs.json"

code=0
"$python" -m bert_jax.pod.first_hour page "$page" || code=1
ask 0 keep "$hour/page.md" <"$page/page.md" >"$logs/keep.log" 2>&1 ||
  say "the page is not on the slice's storage: $(last_line "$logs/keep.log")"
say "the page is $page/page.md"
leave
exit "$code"
