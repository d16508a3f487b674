#!/usr/bin/env bash
# Runs on a host of a slice, called by the other scripts; local_pod.sh calls it on this machine.
#
#   on_host.sh setup RUNS        create the environment, mount RUNS as ./runs; skip what is already done
#   on_host.sh corpus SOURCE     copy or mount the corpus as ./corpus
#   on_host.sh start DIR COORDINATOR COUNT INDEX VERB...
#                                run `bert-jax VERB...` in the background, as process INDEX of COUNT; DIR holds its state
#   on_host.sh look DIR BYTES    print its state (running, stopped, ended CODE or none), then its output past BYTES
#   on_host.sh stop DIR          send SIGTERM, and SIGKILL after a minute
#   on_host.sh send WORKDIR      write the result of a run as a tar stream
#   on_host.sh check FOLDER COORDINATOR COUNT INDEX FLAG...
#                                measure this host, as INDEX of COUNT, in at most ten minutes; print JSON
#   on_host.sh strike DIR SIGNAL WORKDIR STEP
#                                send the process a signal once WORKDIR has the checkpoint of this step
#   on_host.sh compare FOLDER    print as JSON what the runs FOLDER/whole and FOLDER/interrupted left
#   on_host.sh keep FILE         write standard input to a file
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=launch/usage.sh
source "$here/usage.sh"
python=$here/../.venv/bin/python

setup() {
  # shellcheck source=launch/python.sh
  source "$here/python.sh"
  find_python "${tried[@]}" >/dev/null || install_python
  # shellcheck source=launch/environment.sh
  source "$here/environment.sh" tpu
  mkdir -p runs
  if mountpoint -q runs; then
    return
  fi
  case $1 in
    gs://*)
      command -v gcsfuse >/dev/null || install gcsfuse
      bucket=${1#gs://} folder=
      [ "$bucket" = "${bucket%%/*}" ] || folder=--only-dir=${bucket#*/}
      # No caches: all hosts must see what one host writes. Checkpoints are renamed when they are complete.
      # shellcheck disable=SC2086
      gcsfuse --implicit-dirs --metadata-cache-ttl-secs=0 --metadata-cache-negative-ttl-secs=0 --rename-dir-limit=100000 \
        $folder "${bucket%%/*}" runs
      ;;
    *:/*)
      command -v mount.nfs >/dev/null || install nfs-common
      sudo mount -t nfs "$1" runs
      [ -w runs ] || sudo chmod 1777 runs # a new share belongs to root
      ;;
    *) echo "runs=$1 is neither ADDRESS:/SHARE nor gs://BUCKET" >&2 && return 1 ;;
  esac
}

install_python() { # the newest tested version that this system offers
  local version
  for version in "${tried[@]}"; do
    if install "python$version-venv"; then
      return
    fi
  done
}

install() {
  # A host that has just started may still be installing packages.
  sudo apt-get -qq -o DPkg::Lock::Timeout=300 update
  sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install "$1"
}

corpus() {
  case $1 in
    gs://*) mkdir -p corpus && gcloud storage rsync --recursive "$1" corpus ;;
    *)
      mountpoint -q corpus && return
      mkdir -p corpus
      for device in /dev/disk/by-id/google-persistent-disk-1 /dev/sdb /dev/nvme0n2; do
        if [ -e "$device" ]; then
          sudo mount -o ro,noload "$device" corpus
          return
        fi
      done
      echo "no second disk on this host; was the slice created with corpus=$1?" >&2
      return 1
      ;;
  esac
}

start() {
  local dir=$1 coordinator=$2 count=$3 index=$4
  shift 4
  if [ "$(state "$dir")" = running ]; then
    return
  fi
  if [ "$1" = train ] && [ "$count" -gt 1 ]; then
    set -- "$@" "--coordinator=$coordinator" "--processes=$count" "--process=$index"
  fi
  PATH=$PATH:$here/../.venv/bin
  mkdir -p "$dir"
  rm -f "$dir/pid" "$dir/exit"
  set -m # start the process in its own process group, which Ctrl-C does not reach
  # The shell around the process outlives the connection and records the exit code.
  # shellcheck disable=SC2016
  nohup bash -c 'dir=$1; shift; bert-jax "$@" & echo $! >"$dir/pid"; wait $!; echo $? >"$dir/exit"' - "$dir" "$@" \
    >"$dir/log" 2>&1 </dev/null &
  until [ -s "$dir/pid" ]; do sleep 0.1; done
}

look() {
  state "$1"
  [ ! -f "$1/log" ] || tail -c "+$(($2 + 1))" "$1/log"
}

state() {
  # Check the name, too: after a restart of the host, another process may have this id.
  if [ ! -f "$1/exit" ] && [ -s "$1/pid" ]; then
    if ps -ww -p "$(cat "$1/pid")" -o command= | grep -q bert-jax; then
      echo running
      return
    fi
    sleep 1 # wait until its exit code is recorded
  fi
  if [ ! -f "$1/exit" ]; then
    echo none
  elif [ "$(cat "$1/exit")" = 143 ]; then # it got SIGTERM
    echo stopped
  else
    echo "ended $(cat "$1/exit")"
  fi
}

stop() {
  for signal in TERM KILL; do
    [ "$(state "$1")" = running ] || return 0
    kill -s "$signal" "$(cat "$1/pid")"
    for ((second = 0; second < 60; second++)); do
      [ "$(state "$1")" = running ] || return 0
      sleep 1
    done
  done
}

send() {
  cd "$1"
  files=()
  for file in model run.json metrics.jsonl curves.png; do
    [ ! -e "$file" ] || files+=("$file")
  done
  tar -cf - "${files[@]}"
}

check() {
  local folder=$1
  shift
  timeout 600 "$python" -m bert_jax.pod.host_check "$folder" "$here/constraints.txt" "$@"
}

strike() {
  local waited=0
  until [ -f "$3/checkpoints/$4/manifest.json" ]; do
    [ $((waited += 1)) -lt 4500 ] || return 1 # 15 minutes
    sleep 0.2
  done
  kill -s "$2" "$(cat "$1/pid")"
}

compare() { JAX_PLATFORMS=cpu "$python" -m bert_jax.pod.measured_runs "$1"; }

keep() { mkdir -p "$(dirname "$1")" && cat >"$1"; }

case ${1:-} in
  setup | corpus | start | look | stop | send | check | strike | compare | keep) "$@" ;;
  *) die "unknown word '${1:-}' (see $0 --help)" ;;
esac
