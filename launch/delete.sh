#!/usr/bin/env bash
# Deletes the slice and its request, but not the contents of runs.
#
#   launch/delete.sh [--dry-run] [--settings FILE]
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

remove
[ -n "$dry_run" ] || say "$name is deleted"
