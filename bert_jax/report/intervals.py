"""How far chance moves a score: bootstrap intervals, of one model's scores and of the difference of two.

Every score is a function of sums over examples, so a resample needs no example to be judged again: it is so many times
each kind of row, and its scores follow from its sums. Correlations of ranks keep the ranks of all examples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bert_jax import metrics
from bert_jax.inference.outcomes import Outcomes, said, true
from bert_jax.predictions.calibration import Calibration

RESAMPLES = 2000
CHUNK = 100
SHARE = 0.95  # of the resamples that an interval holds


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float


Scores = Callable[[np.ndarray], dict[str, np.ndarray]]


def intervals(given: Outcomes, calibration: Calibration, seed: int = 0) -> dict[str, Interval]:
    rows, scores = sums_of(given, calibration)
    all_of_them = scores(rows.sum(0, keepdims=True))
    drawn = scores(resampled(rows, seed))
    return {name: around(value[0], drawn[name]) for name, value in all_of_them.items()}


def differences(
    a: tuple[Outcomes, Calibration], b: tuple[Outcomes, Calibration], seed: int = 0
) -> dict[str, Interval]:
    """Of each score b's less a's: both are judged by the same resamples of the examples."""
    rows_a, scores = sums_of(*a)
    rows_b, _ = sums_of(*b)
    both, width = np.concatenate([rows_a, rows_b], 1), rows_a.shape[1]

    def apart(sums):
        first, second = scores(sums[:, :width]), scores(sums[:, width:])
        return {name: second[name] - first[name] for name in first}

    drawn, whole = apart(resampled(both, seed)), apart(both.sum(0, keepdims=True))
    return {name: around(value[0], drawn[name]) for name, value in whole.items()}


def around(value: float, drawn: np.ndarray) -> Interval:
    low, high = np.quantile(drawn, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return Interval(float(value), float(low), float(high))


def resampled(rows: np.ndarray, seed: int) -> np.ndarray:
    """[RESAMPLES, sums]"""
    kinds, counts = np.unique(rows, axis=0, return_counts=True)
    rng, total = np.random.default_rng(seed), len(rows)
    drawn = (rng.multinomial(total, counts / total, CHUNK) @ kinds for _ in range(RESAMPLES // CHUNK))
    return np.concatenate(list(drawn))


def sums_of(given: Outcomes, calibration: Calibration) -> tuple[np.ndarray, Scores]:
    """A row of numbers for each example, and the scores of their sums."""
    found, truth = said(given, calibration), true(given)
    match given.kind:
        case "classes":
            one_hot = np.stack([in_labels([{x} for x in each], given.order) for each in (found, truth)])
            right = one_hot[0] * one_hot[1]
            return np.concatenate([right, *one_hot], 1), lambda sums: of_classes(sums, len(given.order))
        case "labels":
            s, t = (in_labels(each, given.labels) for each in (found, truth))
            exact = (s == t).all(1, keepdims=True)
            return np.concatenate([s * t, s, t, exact, exact | True], 1), of_labels
        case "tags":
            return np.array([of_text(*pair) for pair in zip(found, truth, strict=True)], float), of_spans
        case "answers":
            return of_questions(found, truth)
        case "number":
            return of_numbers(np.array(found, float), np.array(truth, float))


def in_labels(sets, labels) -> np.ndarray:
    return np.array([[label in one for label in labels] for one in sets], int).reshape(-1, len(labels))


def over(part, whole):
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole != 0)


def of_classes(sums: np.ndarray, labels: int) -> dict[str, np.ndarray]:
    right, found, truth = np.split(sums.astype(float), 3, axis=1)
    each, total, correct = over(2 * right, found + truth), truth.sum(1), right.sum(1)
    scores = {"accuracy": correct / total}
    if labels == 2:
        scores["f1"] = each[:, 1]
    scores["f1_macro"] = each.sum(1) / (found + truth > 0).sum(1)
    spread = [total**2 - (counts**2).sum(1) for counts in (found, truth)]
    scores["matthews"] = over(correct * total - (found * truth).sum(1), (spread[0] * spread[1]) ** 0.5)
    return scores


def of_labels(sums: np.ndarray) -> dict[str, np.ndarray]:
    right, found, truth = np.split(sums[:, :-2].astype(float), 3, axis=1)
    return {
        "accuracy": sums[:, -2] / sums[:, -1],
        "f1_micro": over(2 * right.sum(1), (found + truth).sum(1)),
        "f1_macro": over(2 * right, found + truth).mean(1),
    }


def of_text(found: list[str], truth: list[str]) -> list[int]:
    a, b = set(metrics.spans_of(found)), set(metrics.spans_of(truth))
    words = sum(x == y for x, y in zip(found, truth, strict=True))
    return [len(a & b), len(a), len(b), words, len(truth)]


def of_spans(sums: np.ndarray) -> dict[str, np.ndarray]:
    right, found, truth, words, all_words = sums.T.astype(float)
    return {
        "f1": over(2 * right, found + truth),
        "precision": over(right, found),
        "recall": over(right, truth),
        "accuracy": over(words, all_words),
    }


def of_questions(found: list[str], truth: list) -> tuple[np.ndarray, Scores]:
    second = not all(map(any, truth))
    rows = []
    for text, right in zip(found, truth, strict=True):
        # A question without an answer beside it has it judged by the rules of all of them.
        one = metrics.answers([text, ""], [right, ()]) if second else metrics.answers([text], [right])
        exact, f1 = (2 * one["exact"] - 1, 2 * one["f1"] - 1) if second else (one["exact"], one["f1"])
        has = any(right)
        rows.append([exact, f1, 1, exact * has, f1 * has, has])

    def scores(sums):
        exact, f1, count, exact_has, f1_has, has = sums.T.astype(float)
        found = {"exact": exact / count, "f1": f1 / count}
        if second:
            found |= {"unanswerable": over(exact - exact_has, count - has)}
            found |= {"answerable_exact": over(exact_has, has), "answerable_f1": over(f1_has, has)}
        return found

    return np.array(rows, float), scores


def of_numbers(found: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, Scores]:
    def products(x, y):
        x, y = x - x.mean(), y - y.mean()
        return [x, y, x * x, y * y, x * y]

    rows = [*products(found, truth), *products(metrics.ranks(found), metrics.ranks(truth))]
    rows += [(found - truth) ** 2, np.ones(len(found))]

    def scores(sums):
        count = sums[:, -1]

        def correlation(x, y, xx, yy, xy):
            spread = np.maximum((xx - x * x / count) * (yy - y * y / count), 0) ** 0.5
            return over(xy - x * y / count, spread)

        return {
            "pearson": correlation(*sums[:, :5].T),
            "spearman": correlation(*sums[:, 5:10].T),
            "mean_squared_error": sums[:, 10] / count,
        }

    return np.stack(rows, 1), scores
