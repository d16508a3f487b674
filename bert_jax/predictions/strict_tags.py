"""The most probable tags of a text in which every span begins with B- or S-, as in IOB2 and BIOES."""

from functools import lru_cache

import numpy as np

from bert_jax.metrics.tagged_spans import OUTSIDE, continues_span, needs_predecessor


def decode_strictly(scores: np.ndarray, labels: tuple[str, ...]) -> np.ndarray:
    """Return the indices [words] of the most probable tags, no I- or E- without the span that it continues.

    `scores` [words, labels] are logits or log probabilities: a constant that is added to all scores of a word changes
    nothing. This is Viterbi's algorithm.
    """
    best, barred = scores.argmax(-1), barred_neighbours(labels)
    if not barred[np.append(-1, best)[:-1], best].any():
        return best
    total, came_from = scores[0] + barred[-1], []
    for of_word in scores[1:]:
        totals = total[:, None] + barred[:-1]
        came_from.append(totals.argmax(0))
        total = totals.max(0) + of_word
    path = [int(total.argmax())]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])


@lru_cache(maxsize=16)
def barred_neighbours(labels: tuple[str, ...]) -> np.ndarray:
    """Return [before, label]: -inf where a label may not follow another, else 0. The last row is a text's beginning.

    >>> barred_neighbours(("O", "B-X", "I-X")).tolist()
    [[0.0, 0.0, -inf], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -inf]]
    """
    barred = [
        [needs_predecessor(label) and not continues_span(before, label) for label in labels]
        for before in (*labels, OUTSIDE)
    ]
    return np.where(barred, -np.inf, 0.0)
