#!/usr/bin/env bash
# Runs the tests, one file per core at a time, up to four: `launch/test.sh`, or with pytest's arguments,
# `launch/test.sh -m "not slow and not long"`. Those of several devices and processes are added by `-m "not long"`.
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" dev
exec python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder "$@"
