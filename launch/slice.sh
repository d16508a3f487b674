# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the scripts that call Google Cloud: reads flags and settings, and defines functions for slice and hosts.
launch=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=launch/hosts.sh
source "$launch/hosts.sh"

dry_run='' settings=$launch/settings.sh words=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage && exit ;;
    --dry-run) dry_run=yes ;;
    --keep) keep_flag=yes ;;
    --settings) settings=${2:?"--settings needs a file"} && shift ;;
    --settings=*) settings=${1#*=} ;;
    -*) die "unknown flag $1 (see $0 --help)" ;;
    *)
      [ -n "${takes_verb:-}" ] || die "unknown argument $1 (see $0 --help)"
      words=("$@") && break # a verb of bert-jax and its own flags
      ;;
  esac
  shift
done

[ -f "$settings" ] || die "no settings file $settings"
# shellcheck source=launch/settings.sh
source "$settings"
reservation=${reservation:-} keep=${keep_flag:-$keep}
same=(--settings "$settings" ${dry_run:+--dry-run} ${keep_flag:+--keep}) # the flags for scripts that a script calls
for setting in project zone name type runs; do
  [ -n "${!setting}" ] || die "$settings leaves $setting empty; fill it in"
done

# Chips and hosts: four chips per host, or all chips of a small slice on one host.
case $type in
  v4-*) chips=$((${type#*-} / 2)) single=4 software=tpu-ubuntu2204-base ;;
  v5litepod-*) chips=${type#*-} single=8 software=v2-alpha-tpuv5-lite ;;
  v5p-*) chips=$((${type#*-} / 2)) single=4 software=v2-alpha-tpuv5 ;;
  v6e-*) chips=${type#*-} single=8 software=v2-alpha-tpuv6e ;;
  *) die "type=$type is unknown; v4-N and v5p-N have N/2 chips, v5litepod-N and v6e-N have N" ;;
esac
hosts=$((chips <= single ? 1 : chips / 4))
software=${version:-$software}
kept="kept and goes on costing money until launch/delete.sh deletes it"
case $capacity in
  spot) chosen=--spot ;;
  reserved)
    chosen=--reserved keep=${keep:-yes}
    [ -z "$reservation" ] || chosen=--reservation=$reservation
    kept="kept, as its reservation is paid for, until launch/delete.sh deletes it"
    ;;
  on-demand) chosen= ;;
  *) die "capacity=$capacity is unknown; spot, reserved or on-demand" ;;
esac
[ -z "$reservation" ] || [ "$capacity" = reserved ] || die "reservation=$reservation needs capacity=reserved"
keep=${keep:-no} flags=(${chosen:+"$chosen"} ${flags[@]+"${flags[@]}"})
case $corpus in
  projects/*) flags+=("--data-disk=source=$corpus,mode=read-only") ;;
esac

state=$(cd "$launch/.." && mkdir -p "$folder/logs" && cd "$folder" && pwd)
logs=$state/logs traces=.process
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

tpus() {
  local command=(gcloud compute tpus "$@" "--project=$project" "--zone=$zone" --quiet)
  # Only the alpha commands take the name of a reservation.
  [ "$2${reservation:+ named}" != "create named" ] || command=(gcloud alpha "${command[@]:1}")
  if [ -n "$dry_run" ]; then
    shown "${command[@]}" >&3
  else
    "${command[@]}"
  fi
}
exec 3>&1 # where --dry-run prints, also from within $(...)

ask() { # INDEX WORD...
  local index=$1
  shift
  local set=${libtpu:+LIBTPU_INIT_ARGS=$(printf '%q' "$libtpu") }
  tpus tpu-vm ssh "$name" "--worker=$index" "--command=cd bert-jax && ${set}launch/on_host.sh$(printf ' %q' "$@")"
}

# Prints READY or another state of gcloud; NONE if there is no slice, UNKNOWN if gcloud does not answer.
slice_state() {
  described tpu-vm describe "$name" "--format=value(state)"
}

request_state() {
  described queued-resources describe "$name" "--format=value(state.state)"
}

described() {
  local answer
  if [ -n "$dry_run" ]; then
    tpus "$@"
  elif answer=$(tpus "$@" 2>"$scratch/described"); then
    echo "${answer:-UNKNOWN}"
  elif grep -q NOT_FOUND "$scratch/described"; then
    echo NONE
  else
    echo UNKNOWN
  fi
}

# Deletes the slice and its request, and checks that both are gone.
remove() {
  local try
  for try in 1 2 3 4 5; do
    [ "$queue" != yes ] || tpus queued-resources delete "$name" --force >"$logs/delete.log" 2>&1 || true
    if [ "$(slice_state)" != NONE ]; then
      tpus tpu-vm delete "$name" >>"$logs/delete.log" 2>&1 || true
    fi
    if [ -n "$dry_run" ]; then
      return
    fi
    if [ "$(slice_state)" = NONE ] && { [ "$queue" != yes ] || [ "$(request_state)" = NONE ]; }; then
      return
    fi
    [ "$try" = 5 ] || sleep "$poll"
  done
  die "$name COULD NOT BE DELETED and may go on costing money: $(last_line "$logs/delete.log"); run launch/delete.sh again"
}

# Exits after a failure, and deletes the slice unless it is to be kept, so that nothing goes on costing money.
give_up() {
  [ -z "${watched:-}" ] || die "$*" # watch.sh does the rest
  if [ "$keep" = yes ]; then
    die "$*; the slice is $kept"
  fi
  say "deleting $name"
  remove
  die "$*; the slice is deleted"
}

# Ends with a slice that has done its work.
leave() {
  if [ "$keep" = yes ]; then
    say "$name is $kept"
  else
    "$launch/delete.sh" "${same[@]}"
  fi
}

# Sets `coordinator`, the address at which the processes find each other.
find_coordinator() {
  local addresses count
  addresses=$(tpus tpu-vm describe "$name" "--format=value(networkEndpoints[].ipAddress)") ||
    die "the hosts of $name are unknown; see launch/status.sh"
  count=$(($(tr -cd ';' <<<"$addresses" | wc -c) + 1))
  [ -z "$dry_run" ] || addresses=ADDRESS count=$hosts
  [ "$count" = "$hosts" ] || die "$name has $count hosts, but $type has $hosts; delete the slice and create it again"
  coordinator=${addresses%%;*}:8476
}

# What `follow` does when a process or the slice is lost. A step that failed because the slice was preempted again is
# not a failure: the slice is recreated once more.
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
