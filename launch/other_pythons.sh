#!/usr/bin/env bash
# Runs the tests on the other Python versions that bert_jax is tested with, that is, not on that of .venv. Each version
# has its own environment with its versions of constraints.txt:
#
#   launch/other_pythons.sh                             those of launch/test.sh on all other versions found
#   launch/other_pythons.sh 3.11 -q tests/inference/test_model.py   on 3.11 only, with arguments for pytest
#
# Pythons are looked for on the path and in PYENV_ROOT.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
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
    echo "Python $version is the version of .venv: run launch/test.sh to test it"
  elif python=$(find_python "$version"); then
    PYTHON=$python VENV=.venv-$version launch/test.sh "$@" || failed+=" $version"
  else
    echo "Python $version was not found on this machine: nothing was tested with it"
  fi
done
[ -z "$failed" ] || die "tests failed on$failed"
