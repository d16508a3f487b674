#!/usr/bin/env bash
# Runs the tests, one file at a time on each core, on up to four cores. Arguments are passed to pytest: with
# `launch/test.sh -m "not slow and not long"` only the quick tests run, with `-m "not long"` also those that take ten
# seconds or more, such as those of several devices and processes. Of most files the slow tests run on some days only;
# `--whole` runs all. PYTHON=/path/to/python chooses another Python, VENV=FOLDER another folder than .venv.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" dev
exec python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder "$@"
