"""How like its training texts a model finds a text, so that it can refuse what belongs to none of its classes."""

from collections.abc import Sequence

import numpy as np

from bert_jax.inference.programs import pooled_states
from bert_jax.inference.runner import Runner
from bert_jax.text.truncation import Truncated


def in_scope(model: Runner, texts):
    """The share of known texts that are as unlike the training texts as this one, or more: 0.01 where about one known
    text in a hundred is.

    A number for one text, an array for a list, an iterator for any other iterable. The known texts are those of the
    training data that the model did not learn from. Of a long text the beginning counts.

    >>> (model.in_scope(["the cat", "the mat"]) < 0.01).tolist()
    [False, False]
    """
    model.scope.check()

    def read(raw, similarity: float) -> float:
        return float(model.scope.share(similarity))

    uncounted = Truncated(model.config.max_positions)
    return model.outcomes(model.kind, texts, read, truncated=uncounted, scoped=True, gather=np.array)


def vectors_of(model: Runner, texts: Sequence, long: str = "cut") -> np.ndarray:
    """[N, D], the vectors by which the model of a scope compares texts."""
    windows = model.kind.windows(model.tokenizer, texts, model.reading(model.kind, long))
    first = [text.encodings[0] for text in windows]
    return np.stack(model.run(first, pooled_states(model.config, "mean", True)))
