#!/usr/bin/env bash
# Shows the state of the slice and of its hosts.
#
#   launch/status.sh [--dry-run] [--settings FILE]
set -euo pipefail
# shellcheck source=launch/slice.sh
source "$(dirname "${BASH_SOURCE[0]}")/slice.sh"

logs=$scratch # launch/watch.sh may be writing to the usual logs
now=$(slice_state)
echo "slice $name, $type in $zone: $now"
[ "$queue" != yes ] || echo "request: $(request_state)"
if [ "$now" = READY ] || [ -n "$dry_run" ]; then
  look_all
  for ((index = 0; index < hosts; index++)); do
    echo "host $index: ${states[index]}; $(last_line "$logs/$index.log")"
  done
fi
