"""A student that starts with some of its teacher's layers."""

import jax
import numpy as np

from bert_jax.models.encoder_config import EncoderConfig


def keep_layers(params: dict, source: EncoderConfig, student: EncoderConfig) -> dict:
    """Keep as many of the source's layers, evenly spaced, as the student has; return the parameters."""
    if source.groups == student.groups:
        return params
    kept, encoder = evenly_spaced(source.groups, student.groups), params["encoder"]
    layers = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], encoder["layers"])
    return params | {"encoder": encoder | {"layers": layers}}


def evenly_spaced(count: int, kept: int) -> list[int]:
    """Return the indices of `kept` out of `count` layers, evenly spaced from the first to the last.

    >>> evenly_spaced(12, 6)
    [0, 2, 4, 7, 9, 11]
    """
    return [round(i * (count - 1) / max(kept - 1, 1)) for i in range(kept)]
