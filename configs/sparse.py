"""Trains a sparse embedder (SPLADE) from a masked LM, on pairs, triplets or groups with a teacher's scores.

    bert-jax train --config configs/sparse.py --workdir runs/sparse --config.init=MODEL \
        --config.data.train=pairs.jsonl

Columns are as in configs/embed.py. Regularizers keep most numbers of a vector at 0; their weights rise in the first
third of the steps. With --config.model.query_weights=learned (or idf), queries need no network.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "sparse"
    return config
