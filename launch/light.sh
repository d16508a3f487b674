#!/usr/bin/env bash
# Installs bert_jax without JAX, to compute with models that `bert-jax export --format onnx` wrote: .venv-light/bin has
# bert-jax, whose embed, predict, rerank, search and evaluate take --engine onnxruntime.
#
#   launch/light.sh
#
# PYTHON=/path/to/python chooses another Python, VENV=FOLDER another folder.
set -euo pipefail
# shellcheck source=launch/usage.sh
source "$(dirname "${BASH_SOURCE[0]}")/usage.sh"
takes_nothing "$@"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/python.sh
source launch/python.sh
venv=${VENV:-.venv-light}
packages=(numpy onnxruntime tokenizers sentencepiece safetensors ml-dtypes scipy threadpoolctl bm25s pystemmer sentencex
  tqdm)
"${PYTHON:-$(find_python "${tried[@]}")}" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" -c launch/constraints.txt "${packages[@]}"
"${pip[@]}" --no-deps .
echo "bert_jax without JAX is in $venv ($(du -sh "$venv" | cut -f1)): $venv/bin/bert-jax embed --engine onnxruntime ..."
