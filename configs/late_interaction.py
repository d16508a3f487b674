"""Trains a late-interaction model (multi-vector, ColBERT) on pairs, triplets or groups with a teacher's scores.

    bert-jax train --config configs/late_interaction.py --workdir runs/colbert --config.init=MODEL \
        --config.data.train=pairs.jsonl

Time: a step of 32 pairs of at most 96 tokens takes 3 to 4 seconds for MiniLM on two cores.
Score: untrained, MiniLM's tokens find the paragraphs of SQuAD's questions with an nDCG@10 of .830 (452 questions; the
standard error is .015), after 24 steps with .832; at 1e-4 instead of 1e-5, with .808.

Columns are as in configs/embed.py. MODEL is an encoder, an embedder or a late-interaction model. Each token of a text
becomes a vector; with --config.model.query_expansion=fixed, queries are lengthened to 32 tokens.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "late_interaction"
    return config
