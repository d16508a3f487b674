"""Metrics of classes: one label for each example, or any number of labels."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.metrics.score_sums import ScoreSums, check_lengths, safe_ratio, split_sums


def score_single_label(predicted: Sequence[str], truth: Sequence[str], labels: Sequence[str]) -> ScoreSums:
    """Score one label for each example. With two labels `f1` is the F1 of the second, as in GLUE; `f1_macro` averages
    over all labels that occur."""
    names = tuple(dict.fromkeys([*labels, *truth, *predicted]))

    def scores(sums):
        right, given, true = split_sums(sums, 3)
        by_label, total, correct = safe_ratio(2 * right, given + true), true.sum(-1), right.sum(-1)
        spread = [total**2 - (counts**2).sum(-1) for counts in (given, true)]
        together = correct * total - (given * true).sum(-1)
        return {
            "accuracy": correct / total,
            **({"f1": by_label[..., 1]} if len(labels) == 2 else {}),
            "f1_macro": by_label.sum(-1) / (given + true > 0).sum(-1),
            "matthews": safe_ratio(together, (spread[0] * spread[1]) ** 0.5),
        }

    check_lengths(predicted, truth)
    p, t = (multi_hot([(label,) for label in side], names) for side in (predicted, truth))
    return ScoreSums(np.concatenate([p & t, p, t], 1), scores)


def score_multi_label(predicted: Sequence[set], truth: Sequence[set], labels: Sequence[str]) -> ScoreSums:
    """Score any number of labels for each example. `accuracy` is the share of examples with exactly the true labels."""

    names = tuple(dict.fromkeys([*labels, *sorted(set().union(*truth))]))

    def scores(sums):
        right, given, true = split_sums(sums[..., :-2], 3)
        return {
            "accuracy": sums[..., -2] / sums[..., -1],
            "f1_micro": safe_ratio(2 * right.sum(-1), (given + true).sum(-1)),
            "f1_macro": safe_ratio(2 * right, given + true).mean(-1),
        }

    check_lengths(predicted, truth)
    p, t = (multi_hot(side, names) for side in (predicted, truth))
    exact = (p == t).all(1, keepdims=True)
    return ScoreSums(np.concatenate([p & t, p, t, exact, np.ones_like(exact)], 1), scores)


def count_items(
    predicted: Iterable[Iterable],
    truth: Iterable[Iterable],
    known: Iterable[str] = (),
    name: Callable[[Any], str] = str,
) -> dict[str, tuple[int, int, int]]:
    """Count the items of all examples: {name: (number right, number predicted, number true)}, `known` names first.

    >>> count_items([{"a", "b"}, {"a"}], [{"b"}, {"a", "c"}], ["c"])
    {'c': (0, 0, 1), 'a': (1, 2, 1), 'b': (1, 1, 1)}
    """
    right, given, true = Counter[str](), Counter[str](), Counter[str]()
    for p, t in zip(predicted, truth, strict=True):
        given.update(map(name, p))
        true.update(map(name, t))
        right.update(map(name, set(p) & set(t)))
    return {
        key: (right[key], given[key], true[key]) for key in dict.fromkeys([*known, *sorted(given | true)])
    }


def precision_recall_f1(right: int, given: int, true: int) -> dict[str, float]:
    scores = {
        "f1": safe_ratio(2 * right, given + true),
        "precision": safe_ratio(right, given),
        "recall": safe_ratio(right, true),
    }
    return {name: float(score) for name, score in scores.items()}


def multi_hot(sets: Sequence[Iterable[str]], labels: Sequence[str]) -> np.ndarray:
    """Return [N, labels]: whether each label is in each set."""
    number = {label: i for i, label in enumerate(labels)}
    columns = np.zeros((len(sets), len(labels)), bool)
    for row, names in zip(columns, sets, strict=True):
        row[[number[name] for name in names]] = True
    return columns
