"""BGE-M3 in FlagEmbedding and here: `python -m tests.peers.flag_embedding_trial DIR`, in an environment of it alone.

DIR has models in `published` and `saved`, and in `ours.json` the texts, the pairs and the results of bert_jax for both.
"""

import json
import sys
from pathlib import Path

import numpy as np
from FlagEmbedding import BGEM3FlagModel

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    ours = json.loads((folder / "ours.json").read_text())
    for name in ("published", "saved"):
        model = BGEM3FlagModel(
            str(folder / name), use_fp16=False, devices="cpu", passage_max_length=ours["max_length"]
        )
        found = model.encode(ours["texts"], return_dense=True, return_sparse=True, return_colbert_vecs=True)
        np.testing.assert_allclose(ours["dense"], found["dense_vecs"], atol=1e-5)
        for own, weights in zip(ours["sparse"], found["lexical_weights"], strict=True):
            assert own.keys() == weights.keys(), (own, weights)
            np.testing.assert_allclose([own[key] for key in own], [weights[key] for key in own], atol=1e-5)
        for rows, vectors in zip(ours["tokens"], found["colbert_vecs"], strict=True):
            np.testing.assert_allclose(rows, vectors, atol=1e-5)
        weights = ours["weights"]
        for n, pair in enumerate(
            ours["pairs"]
        ):  # one by one: a padded document has a vector of zeros more there
            scores = model.compute_score(pair, weights_for_different_modes=weights)
            for key, score in scores.items():
                assert abs(ours["scores"][key][n] - score) <= 1e-5, (
                    name,
                    pair,
                    key,
                    ours["scores"][key][n],
                    score,
                )
        shown = f"{len(ours['texts'])} texts and {len(ours['pairs'])} pairs"
        print(f"{name}: {shown} as in FlagEmbedding, {sum(map(len, ours['sparse']))} weights of tokens")
