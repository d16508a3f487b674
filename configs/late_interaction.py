"""Trains a late-interaction model (multi-vector, ColBERT) on pairs, triplets or groups with a teacher's scores.

    bert-jax train --config configs/late_interaction.py --workdir runs/colbert --config.init=MODEL \
        --config.data.train=pairs.jsonl

Columns are as in configs/embed.py. MODEL is an encoder, an embedder or a late-interaction model. Each token of a text
becomes a vector; with --config.model.query_expansion=fixed, queries are lengthened to 32 tokens.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "late_interaction"
    return config
