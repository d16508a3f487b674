"""Trains a cross-encoder, which reads a query and a document together, to rank documents for queries.

    bert-jax train --config configs/rerank.py --workdir runs/rerank --config.init=MODEL \
        --config.data.train=mined.jsonl

Rows are a query, a document and a label (0 or 1, or grades), or a query, a relevant document and others that are not,
as `bert-jax mine` writes them. Documents of other queries are added where none is not relevant.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "rerank"
    return config
