# shellcheck shell=bash disable=SC2154
# Sourced: starts the processes of a run, one on each host, watches them, and restarts them if one is lost. The script
# that sources this file defines `ask INDEX WORD...`, which runs `on_host.sh WORD...` on a host; `$hosts`, the number of
# hosts; `$traces`, the folder on a host for the state of its process; and `$logs`, the folder on this machine for their
# output. If it sets `$shows_output`, the output of the first process is also printed as it arrives.
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"

say() { echo "$(date +%H:%M:%S) $*"; }

# Prints a command as you would type it.
shown() {
  local word line=''
  for word in "$@"; do
    case $word in
      '' | *[!A-Za-z0-9_/.,:=@%+-]*) word="'${word//\'/\'\\\'\'}'" ;;
    esac
    line="$line${line:+ }$word"
  done
  echo "$line"
}

# Runs `FUNCTION INDEX WORD...` for all hosts in parallel; `failed` lists the hosts where it failed.
at_once() {
  local function=$1 index pids=()
  shift
  failed=
  for ((index = 0; index < hosts; index++)); do
    if [ -n "$dry_run" ]; then
      "$function" "$index" "$@"
    else
      "$function" "$index" "$@" </dev/null &
      pids+=($!)
    fi
  done
  for ((index = 0; index < ${#pids[@]}; index++)); do
    wait "${pids[index]}" || failed="$failed $index"
  done
  [ -z "$failed" ]
}

ask_one() { ask "$@" >"$logs/$2-$1.log" 2>&1; }
ask_all() { at_once ask_one "$@"; }

start_one() { # INDEX COORDINATOR VERB...
  local index=$1 coordinator=$2
  shift 2
  if [ -z "$dry_run" ]; then
    mkdir -p "$logs/before"
    [ ! -f "$logs/$index.log" ] || cat "$logs/$index.log" >>"$logs/before/$index.log"
    : >"$logs/$index.log"
  fi
  ask_one "$index" start "$traces" "$coordinator" "$hosts" "$index" "$@"
}
start_all() { at_once start_one "$@"; }

look_one() {
  touch "$logs/$1.log"
  ask "$1" look "$traces" "$(wc -c <"$logs/$1.log" | tr -d ' ')" >"$logs/look-$1" 2>"$logs/look-$1.error"
}

# Fetches the states of the hosts, and their output since the last call.
look_all() {
  local index
  at_once look_one || true
  states=()
  for ((index = 0; index < hosts; index++)); do
    case "$failed " in
      *" $index "*) states[index]=unreachable ;;
      *)
        states[index]=$(head -n 1 "$logs/look-$index")
        tail -n +2 "$logs/look-$index" >>"$logs/$index.log"
        [ -z "${shows_output:-}" ] || [ "$index" -gt 0 ] || tail -n +2 "$logs/look-$index"
        ;;
    esac
  done
}

workdir_of() { # VERB...
  while [ $# -gt 0 ]; do
    case $1 in
      --workdir) echo "${2:-}" ;;
      --workdir=*) echo "${1#*=}" ;;
    esac
    shift
  done
}

last_line() { tr '\r' '\n' <"$1" 2>/dev/null | grep -v '^ *$' | tail -n 1; }

# Exit codes of bert-jax (bert_jax/core/errors.py): its updates are not finite, or it lost another process of its run.
not_finite="ended 3" lost_another="ended 4"

# Sums up the states in `verdict`: running, stopped, ended, unreachable or failed; `culprit` is the host that failed.
judge() {
  local index
  verdict=ended culprit=
  for ((index = 0; index < hosts; index++)); do
    case ${states[index]} in
      "ended 0") ;;
      stopped) [ "$verdict" != ended ] || verdict=stopped ;;
      running) verdict=running ;;
      unreachable) [ "$verdict" = running ] || verdict=unreachable ;;
      *)
        # A process that lost another one is not the culprit.
        if [ -z "$culprit" ] || [ "${states[culprit]}" = "$lost_another" ]; then
          culprit=$index
        fi
        ;;
    esac
  done
  [ -z "$culprit" ] || verdict=failed
}

# Succeeds if a retry may help. An error of the process itself soon after its start would only come again.
passing() {
  case ${states[culprit]} in
    none | "$lost_another" | "ended 1"[2-9]? | "ended 2"??) return 0 ;;
    "$not_finite") return 1 ;;
  esac
  [ $((SECONDS - since)) -gt 300 ]
}

# Watches until the run has ended. The caller defines `slice_state`, `again` (starts the processes) and `renew`
# (recreates the slice and starts them). Fails with a `reason` if a retry would not help.
follow() {
  local failures=0 since=$SECONDS before=
  while :; do
    verdict=$(slice_state)
    case $verdict in
      READY)
        look_all
        judge
        ;;
      CREATING | STARTING | RESTARTING | REIMAGING | REPAIRING | UNKNOWN) ;;
      *) verdict=lost ;;
    esac
    if [ "$verdict" != "$before" ]; then
      case $verdict in
        running) say "running on $hosts hosts" ;;
        unreachable) say "hosts$failed do not answer; asking again" ;;
        UNKNOWN) say "the state of the slice is unknown; asking again" ;;
        *ING) say "the slice is $verdict; waiting" ;;
      esac
      before=$verdict
    fi
    case $verdict in
      ended) return ;;
      stopped)
        say "$(last_line "$logs/0.log")"
        # When a slice is preempted, its processes are told to stop first.
        sleep "$poll"
        reason="the processes could not be restarted"
        [ "$(slice_state)" != READY ] || again || return
        ;;
      lost)
        say "the slice was preempted; its last line: $(last_line "$logs/0.log")"
        reason="the slice could not be recreated"
        renew || return
        since=$SECONDS
        ;;
      failed)
        reason="host $culprit failed (${states[culprit]}): $(last_line "$logs/$culprit.log")"
        # A preemption shows in the processes before it shows in the state of the slice.
        if [ "$(slice_state)" = READY ]; then
          say "$reason"
          ask_all stop "$traces" || true
          passing || return
          [ $((SECONDS - since)) -lt 3600 ] || failures=0
          failures=$((failures + 1))
          if [ "$failures" -gt "$restarts" ]; then
            reason="$reason; restarted $restarts times"
            return 1
          fi
          look_all # fetch the last lines of the processes that were stopped
          say "started again"
          again || return
          since=$SECONDS
        fi
        ;;
    esac
    sleep "$poll"
  done
}
