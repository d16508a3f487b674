"""Pairs of texts that belong together, and the task that learns from them."""

import random

from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.tasks import load_config as load_task
from tests.support.texts import random_texts

EMBED_CONFIG, SPARSE_CONFIG = "configs/embed.py", "configs/sparse.py"
LATE_CONFIG = "configs/late_interaction.py"


def random_pairs(count: int, seed: int = 0) -> list[dict]:
    """Two texts belong together if all words of the first are in the second."""
    rng = random.Random(seed)
    rows = []
    for question, more in zip(
        random_texts(count, (3, 3), seed), random_texts(count, (5, 9), seed + 1), strict=True
    ):
        words = [*question.split(), *more.split()]
        rng.shuffle(words)
        rows.append({"question": question, "answer": " ".join(words)})
    return rows


def open_embed_task(model, train, *overrides, spec: str = EMBED_CONFIG):
    given = [f"init={model}", f"data.train={train}", "data.max_length=16", *overrides]
    module, config = load_task(spec, given)
    return module.open(config, ModelDirectories())


def open_sparse_task(model, train, *overrides):
    return open_embed_task(model, train, *overrides, spec=SPARSE_CONFIG)


def open_late_interaction_task(model, train, *overrides):
    return open_embed_task(model, train, *overrides, spec=LATE_CONFIG)
