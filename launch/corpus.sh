#!/usr/bin/env bash
# Copies the corpus of settings.sh from a bucket to ./corpus on all hosts, or mounts it there from a disk.
#
#   launch/corpus.sh [--dry-run] [--keep] [--settings FILE]
#
# Files that are already there are not copied again. If it fails, the slice is deleted, unless it is reserved, or `--keep`
# or keep=yes is set.
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

[ -n "$corpus" ] || die "$settings leaves corpus empty; fill it in"
if ! ask_all corpus "$corpus"; then
  for index in $failed; do
    say "host $index did not get the corpus: $(last_line "$logs/corpus-$index.log") ($logs/corpus-$index.log)"
  done
  give_up "$corpus did not reach $(wc -w <<<"$failed" | tr -d ' ') of $hosts hosts"
fi
[ -n "$dry_run" ] || say "$corpus is on $hosts hosts"
