"""The similarity of a text to a model's training texts, to refuse texts that belong to none of its classes."""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.inference.programs import pooled_states
from bert_jax.inference.runner import Runner
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import make_outcome_function
from bert_jax.text.truncation import TruncationCounter


def in_scope(model: Runner, texts):
    """Return the share of known texts that are at most as similar to the training texts as this text.

    A share of 0.01 means that about one known text in a hundred is as dissimilar as this text, or more so. Return a
    number for one text, an array for a list, or an iterator for any other iterable. The known texts are those texts of
    the training data that the model was not trained on. Only the beginning of a long text is used.

    >>> (model.in_scope(["the cat", "the mat"]) < 0.01).tolist()
    [False, False]
    """
    model.scope.check_usable()
    uncounted = TruncationCounter(model.config.max_position_embeddings)
    compute_outcomes = make_outcome_function(model, model.kind, truncated=uncounted, compares=True)

    def compare_chunk(chunk) -> Iterator[float]:
        return (float(model.scope.p_value(similarity)) for _, similarity in compute_outcomes(chunk))

    return map_texts(texts, compare_chunk, np.array)


def mean_state_vectors(model: Runner, texts: Sequence, long_texts: str = "truncate") -> np.ndarray:
    """Return the vectors [N, D] by which `in_scope` compares texts: the mean states of the first window, normalized."""
    windows = model.kind.encode_windows(model.tokenizer, texts, model.reading(model.kind, long_texts))
    first = [text.encodings[0] for text in windows]
    return np.stack(model.run(first, pooled_states(model.config, "mean", True)))
