"""The similarity of a text to a model's training texts, to refuse texts that belong to none of its classes."""

from collections.abc import Sequence

import numpy as np

from bert_jax.inference.computations import PooledStates
from bert_jax.inference.runner import Runner


def mean_state_vectors(model: Runner, texts: Sequence, long_texts: str = "truncate") -> np.ndarray:
    """Return the vectors [N, D] by which texts are compared: the mean states of the first window, normalized."""
    windows = model.kind.encode_windows(model.tokenizer, texts, model.reading(model.kind, long_texts))
    first = [text.encodings[0] for text in windows]
    return np.stack(model.run(first, PooledStates("mean", normalize=True)))
