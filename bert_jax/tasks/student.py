"""A student that begins as its teacher, with some of the layers."""

import jax
import numpy as np

from bert_jax.models.config import EncoderConfig


def with_layers(params: dict, source: EncoderConfig, student: EncoderConfig) -> dict:
    """The parameters of a model with the source's layers, with as many of these as the student has."""
    if source.groups == student.groups:
        return params
    kept, encoder = evenly(source.groups, student.groups), params["encoder"]
    layers = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], encoder["layers"])
    return params | {"encoder": encoder | {"layers": layers}}


def evenly(count: int, kept: int) -> list[int]:
    """Which of `count` layers are kept, from the first to the last.

    >>> evenly(12, 6)
    [0, 2, 4, 7, 9, 11]
    """
    return [round(i * (count - 1) / max(kept - 1, 1)) for i in range(kept)]
