#!/usr/bin/env bash
# Runs the tests on the Pythons that bert_jax was tried with, besides that of .venv, each with its versions of
# constraints.txt in an environment of its own:
#
#   launch/other_pythons.sh                             all tests on all others that are found: some 15 minutes each
#   launch/other_pythons.sh 3.11 -q tests/test_api.py   on 3.11 alone, with pytest's arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/python.sh
source launch/python.sh
chosen=()
while [[ ${1:-} =~ ^3\.[0-9]+$ ]]; do
  chosen+=("$1")
  shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${tried[@]}")
failed=
for version in "${chosen[@]}"; do
  if [ "$version" = "$(version_of .venv/bin/python)" ]; then
    echo "Python $version is that of .venv: launch/test.sh runs its tests"
  elif python=$(find_python "$version"); then
    PYTHON=$python VENV=.venv-$version launch/test.sh "$@" || failed+=" $version"
  else
    echo "Python $version is not on this machine: nothing was tested with it"
  fi
done
if [ -n "$failed" ]; then
  echo "other_pythons.sh: tests failed on$failed" >&2
  exit 1
fi
