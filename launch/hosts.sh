# shellcheck shell=bash disable=SC2154
# Sourced: the processes of a run, one on each host, started, looked at, and started again when one is lost. Whoever
# sources this says what a host is: `ask INDEX WORD...` runs `on_host.sh WORD...` there, `$hosts` is their number,
# `$traces` the folder there for what a process leaves, `$logs` the one here for what it prints.

say() { echo "$(date +%H:%M:%S) $*"; }

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# A command as one would type it.
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

usage() { sed -nE '2,/^[^#]/s/^#( |$)//p' "${1:-$0}"; }

# Runs `FUNCTION INDEX WORD...` for all hosts at once; those where it failed are left in `failed`.
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

# Fetches what the hosts printed since the last look, and their states.
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

# Exit codes of bert-jax: its updates are not finite, and it lost another process of its run (bert_jax/errors.py).
not_finite="ended 3" lost_another="ended 4"

# What the states come to: running, stopped, ended, unreachable or failed; `culprit` is the host to look at.
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
        # A process that lost another is not the one that was lost.
        if [ -z "$culprit" ] || [ "${states[culprit]}" = "$lost_another" ]; then
          culprit=$index
        fi
        ;;
    esac
  done
  [ -z "$culprit" ] || verdict=failed
}

# Whether another try may succeed: an error of the process itself soon after its start would come again.
passing() {
  case ${states[culprit]} in
    none | "$lost_another" | "ended 1"[2-9]? | "ended 2"??) return 0 ;;
    "$not_finite") return 1 ;;
  esac
  [ $((SECONDS - since)) -gt 300 ]
}

# Looks on until the run has ended. What to do then is the caller's: `slice_state`, `again` (start the processes),
# `renew` (make the slice anew and start them). Fails, and leaves the `reason`, when going on is of no use.
follow() {
  local failures=0 since=$SECONDS said=
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
    if [ "$verdict" != "$said" ]; then
      case $verdict in
        running) say "running on $hosts hosts" ;;
        unreachable) say "hosts$failed do not answer; they are asked again" ;;
        UNKNOWN) say "the state of the slice cannot be found out; it is asked again" ;;
        *ING) say "the slice is $verdict; waiting" ;;
      esac
      said=$verdict
    fi
    case $verdict in
      ended) return ;;
      stopped)
        say "$(last_line "$logs/0.log")"
        # Who is about to be preempted is told to stop: the slice goes a moment later.
        sleep "$poll"
        reason="it could not be started again"
        [ "$(slice_state)" != READY ] || again || return
        ;;
      lost)
        say "the slice was preempted; its last line: $(last_line "$logs/0.log")"
        reason="the slice could not be made anew"
        renew || return
        since=$SECONDS
        ;;
      failed)
        reason="host $culprit failed (${states[culprit]}): $(last_line "$logs/$culprit.log")"
        # A preemption shows in the processes first.
        if [ "$(slice_state)" = READY ]; then
          say "$reason"
          ask_all stop "$traces" || true
          passing || return
          [ $((SECONDS - since)) -lt 3600 ] || failures=0
          failures=$((failures + 1))
          if [ "$failures" -gt "$restarts" ]; then
            reason="$reason; it was started again $restarts times"
            return 1
          fi
          say "started again"
          again || return
          since=$SECONDS
        fi
        ;;
    esac
    sleep "$poll"
  done
}
