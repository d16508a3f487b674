"""ALiBi: attention scores fall linearly with the distance between two tokens, at a slope of its own for each head.

The paper's decoders see only earlier tokens. For encoders, which see both sides, the bias is symmetric.
"""

import jax.numpy as jnp
import numpy as np

from bert_jax.models.relative_terms import RelativeTerms, range_of


def head_slopes(heads: int) -> np.ndarray:
    """Return the slope of each head, [H].

    For a power of two they are a geometric series. Other numbers of heads have the slopes of the power of two below,
    then every second one of the power of two above, beginning with the first, as in the paper's code.

    >>> head_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> head_slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    """
    below = 1 << (heads.bit_length() - 1)
    own = 2.0 ** (-8 * np.arange(1, below + 1) / below)
    between = 2.0 ** (-8 * np.arange(1, 2 * below + 1, 2) / (2 * below))
    return np.concatenate([own, between[: heads - below]])


def alibi_terms(heads: int, length) -> RelativeTerms:
    """Return the bias of each head and distance, for rows of `length` tokens, which an export leaves open."""
    distances = abs(range_of(2 * length - 1) - (length - 1))
    slopes = np.asarray(head_slopes(heads), np.float32)
    return RelativeTerms(bias=-slopes[:, None] * jnp.asarray(distances, jnp.float32), is_fixed=True)
