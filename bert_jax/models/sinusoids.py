"""Sinusoidal position embeddings, as in "Attention Is All You Need": a table that is computed, not trained."""

import numpy as np

BASE = 10_000.0  # the wavelengths grow from 2 pi to nearly 2 pi times this


def sinusoidal_table(length: int, width: int) -> np.ndarray:
    """Return the embeddings of positions 0, 1, 2 ... [length, width], in float32.

    Columns are sine, cosine, sine ...; columns 2i and 2i + 1 turn by base^(-2i / width) per position. The Transformer
    multiplies word embeddings by the root of their width. We divide the table by it instead, so that words keep BERT's
    scale. To the LayerNorm that follows, both are the same.
    """
    columns = np.arange(width)
    # In float64: a float32 angle of a thousand radians is off in the fourth digit.
    angles = np.arange(length)[:, None] / BASE ** (columns // 2 * 2 / width)
    waves = np.where(columns % 2, np.cos(angles), np.sin(angles))
    return np.asarray(waves / width**0.5, np.float32)
