"""Trains a cross-encoder, which reads a query and a document together, to rank documents for queries.

    bert-jax train --config configs/rerank.py --workdir runs/rerank --config.init=MODEL \
        --config.data.train=mined.jsonl

Rows hold a query, a document and a label (0 or 1, or grades), or a query, a relevant document and irrelevant ones, as
`bert-jax mine` writes them. A column with a usual name, such as query or document, is found wherever it stands. If
there are no irrelevant documents, documents of other queries are added.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "rerank"
    return config
