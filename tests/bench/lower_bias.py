"""Lowers the bias of a masked LM's head, so that a sparse embedder can start from it.

    python -m tests.bench.lower_bias MODEL PAIRS OUTPUT [ENTRIES]

A masked LM ignores a constant that is added to all its logits, and a sparse embedder does not. OUTPUT is MODEL with a
constant less, so that the first paragraphs of PAIRS have ENTRIES active entries on average.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import bert_jax

PARAGRAPHS = 64


def main(model: str, pairs: str, output: str, entries: str = "1000") -> None:
    lines = Path(pairs).read_text(encoding="utf-8").splitlines()
    texts = [*dict.fromkeys(json.loads(line)["paragraph"] for line in lines)][:PARAGRAPHS]
    weights = bert_jax.SparseEmbedder.load(model).encode_document(texts).data
    logits = np.sort(np.expm1(weights))[::-1]  # the largest of each entry in each paragraph, where positive
    constant = logits[min(int(entries) * len(texts), len(logits) - 1)]
    masked_lm = bert_jax.MaskedLM.load(model)
    params = jax.tree.map(np.asarray, masked_lm.params)
    params["mlm"]["bias"] = params["mlm"]["bias"] - constant
    masked_lm.with_params(params).save(output)
    active = len(weights) / len(texts)
    print(f"{active:,.0f} entries were active in {len(texts)} paragraphs; the bias is {constant:.2f} lower")


if __name__ == "__main__":
    main(*sys.argv[1:])
