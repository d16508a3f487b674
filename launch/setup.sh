#!/usr/bin/env bash
# Copies the code of this folder to all hosts, installs the versions of constraints.txt, and mounts the runs.
#
#   launch/setup.sh [--dry-run] [--keep] [--settings FILE]
#
# A second call updates what has changed. If a host cannot be set up, the slice is deleted, unless it is reserved, or
# `--keep` or keep=yes is set.
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

code=$scratch/bert-jax.tar.gz
tar -czf "$code" -C "$launch/.." --exclude=__pycache__ pyproject.toml README.md LICENSE bert_jax configs launch
tpus tpu-vm scp "$code" "$name:" --worker=all >"$logs/scp.log" 2>&1 ||
  give_up "the code could not be copied: $(last_line "$logs/scp.log")"

unpack() {
  local there="mkdir -p bert-jax && cd bert-jax && rm -rf bert_jax configs launch && tar -xzf ../bert-jax.tar.gz"
  tpus tpu-vm ssh "$name" "--worker=$1" "--command=$there && launch/on_host.sh setup $(printf %q "$runs")" \
    >"$logs/setup-$1.log" 2>&1
}
if ! at_once unpack; then
  for index in $failed; do
    say "host $index could not be set up: $(last_line "$logs/setup-$index.log") ($logs/setup-$index.log)"
  done
  give_up "$(wc -w <<<"$failed" | tr -d ' ') of $hosts hosts could not be set up"
fi
[ -n "$dry_run" ] || say "$hosts hosts are set up"
