"""Metrics: one function for each kind of prediction, which compares predictions with the truth and returns `ScoreSums`.

Every score is a function of sums over examples. A resample of the examples (bootstrap) therefore needs no example to be
scored again: its scores follow from its sums. All scores lie between 0 and 1 (correlations between -1 and 1), and
higher is better; only for the mean squared error lower is better. A ratio of 0 to 0 counts as 0, and so does the
correlation with a constant.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError

# About 0 if the predictions do not depend on the text.
INFORMATIVE = ("matthews", "spearman", "f1_micro", "f1")
NEGLIGIBLE = 0.02  # an informative score below this counts as 0
OUTSIDE = "O"
MARKS = ("B", "I", "E", "S")  # a span's first word, a word inside, its last word, its only word


@dataclass(frozen=True)
class ScoreSums:
    """A row of numbers for each example, and a function that turns sums [..., S] of such rows into scores."""

    rows: np.ndarray  # [N, S]
    compute_scores: Callable[[np.ndarray], dict[str, np.ndarray]]

    @property
    def scores(self) -> dict[str, float]:
        """The scores over all examples."""
        return {name: float(value) for name, value in self.compute_scores(self.rows.sum(0)).items()}


def single_label(predicted: Sequence[str], truth: Sequence[str], labels: Sequence[str]) -> ScoreSums:
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


def multi_label(predicted: Sequence[set], truth: Sequence[set], labels: Sequence[str]) -> ScoreSums:
    """Score any number of labels for each example. `accuracy` is the share of examples with exactly the true labels."""

    def scores(sums):
        right, given, true = split_sums(sums[..., :-2], 3)
        return {
            "accuracy": sums[..., -2] / sums[..., -1],
            "f1_micro": safe_ratio(2 * right.sum(-1), (given + true).sum(-1)),
            "f1_macro": safe_ratio(2 * right, given + true).mean(-1),
        }

    check_lengths(predicted, truth)
    p, t = (multi_hot(side, labels) for side in (predicted, truth))
    exact = (p == t).all(1, keepdims=True)
    return ScoreSums(np.concatenate([p & t, p, t, exact, np.ones_like(exact)], 1), scores)


def regression(predicted: Sequence[float], truth: Sequence[float]) -> ScoreSums:
    """Score numbers. Ranks are computed once, among all examples, and kept in a resample: close to ranking it anew."""
    check_lengths(predicted, truth)
    p, t = np.asarray(predicted, np.float64), np.asarray(truth, np.float64)

    def products(x, y):
        # Centred, to lose little precision. If all numbers are equal, exact zeros: they may differ from their mean by a
        # rounding error.
        x, y = (side - side.mean() if np.ptp(side) else np.zeros(len(side)) for side in (x, y))
        return [x, y, x * x, y * y, x * y]

    def scores(sums):
        count = sums[..., -1]

        def correlation(x, y, xx, yy, xy):
            spread = np.maximum((xx - x * x / count) * (yy - y * y / count), 0) ** 0.5
            return np.clip(safe_ratio(xy - x * y / count, spread), -1, 1)

        columns = np.moveaxis(sums, -1, 0)
        return {
            "pearson": correlation(*columns[:5]),
            "spearman": correlation(*columns[5:10]),
            "mean_squared_error": columns[10] / count,
        }

    rows = [*products(p, t), *products(average_ranks(p), average_ranks(t)), (p - t) ** 2, np.ones(len(p))]
    return ScoreSums(np.stack(rows, 1), scores)


def clustering(assigned: Sequence, truth: Sequence[str]) -> ScoreSums:
    """Score how well clusters agree with labels: homogeneity, completeness and their harmonic mean, the V-measure.

    The entropies of a resample use the frequencies of labels and clusters among all examples. To first order, this
    equals using its own frequencies, but it leaves out the agreement that a resample gains by chance alone.
    """

    def surprise(values) -> np.ndarray:
        _, place, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
        return -np.log(counts / len(values))[place]

    def scores(sums):
        label, cluster, both = (sums[..., n] / sums[..., -1] for n in range(3))
        shared = np.maximum(label + cluster - both, 0)
        return {
            "v_measure": np.minimum(safe_ratio(2 * shared, label + cluster), 1),
            "homogeneity": np.minimum(safe_ratio(shared, label), 1),
            "completeness": np.minimum(np.where(cluster > 0, safe_ratio(shared, cluster), 1), 1),
        }

    check_lengths(assigned, truth)
    t, a = (np.unique(side, return_inverse=True)[1] for side in (np.array(truth), np.array(assigned)))
    rows = [surprise(t), surprise(a), surprise(np.stack([t, a], 1)), np.ones(len(t))]
    return ScoreSums(np.stack(rows, 1), scores)


def tagged_spans(predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> ScoreSums:
    """Score tags of words. A span is right if its kind and both its ends are right. `accuracy` counts single words."""

    def scores(sums):
        right, given, true, words, all_words = np.moveaxis(sums.astype(float), -1, 0)
        return {
            "f1": safe_ratio(2 * right, given + true),
            "precision": safe_ratio(right, given),
            "recall": safe_ratio(right, true),
            "accuracy": safe_ratio(words, all_words),
        }

    check_lengths(predicted, truth)
    rows = []
    for n, (p, t) in enumerate(zip(predicted, truth, strict=True)):
        if len(p) != len(t):
            raise BertJaxError(
                f"sequence {n} has {len(p)} tags predicted for {len(t)} words; give each word one"
            )
        given, true = set(extract_spans(p)), set(extract_spans(t))
        words = sum(a == b for a, b in zip(p, t, strict=True))
        rows.append([len(given & true), len(given), len(true), words, len(t)])
    return ScoreSums(np.array(rows), scores)


def squad(predicted: Sequence[str], truth: Sequence[Sequence[str]]) -> ScoreSums:
    """Score answers as SQuAD does, each against all right answers of its question: `exact`, and `f1` of the words.

    A question without an answer (SQuAD 2.0) has the right answer "". If there is one, all questions are scored by the
    rules of 2.0, which differ from those of 1.1 if a right answer is nothing but articles and punctuation.
    """
    check_lengths(predicted, truth)
    squad_v2 = not all(map(any, truth))

    def scores(sums):
        exact, f1, count, exact_has, f1_has, has = np.moveaxis(sums, -1, 0)
        scores = {"exact": exact / count, "f1": f1 / count}
        if squad_v2:
            # Separate scores for both sorts of question: a model that never answers looks good if many have no answer.
            scores["unanswerable"] = safe_ratio(exact - exact_has, count - has)
            scores |= {
                "answerable_exact": safe_ratio(exact_has, has),
                "answerable_f1": safe_ratio(f1_has, has),
            }
        return scores

    rows = []
    for answer, right in zip(predicted, truth, strict=True):
        exact, f1 = answer_scores(answer, right, squad_v2)
        rows.append([exact, f1, 1, exact * any(right), f1 * any(right), any(right)])
    return ScoreSums(np.array(rows, float), scores)


def answer_scores(answer: str, right: Sequence[str], squad_v2: bool) -> tuple[bool, float]:
    """Return (exact, F1 of the words) of an answer, by the rules of SQuAD 2.0 if `second`, else of 1.1."""
    if squad_v2:
        right = [text for text in right if answer_words(text)] or [""]
    words = answer_words(answer)
    exact = any(words == answer_words(text) for text in right)
    return exact, max(word_f1(words, answer_words(text), squad_v2) for text in right)


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


def count_spans(predicted: Iterable[Sequence[str]], truth: Iterable[Sequence[str]]):
    """Count the spans of each kind: {kind: (number right, number predicted, number true)}."""
    p, t = ([set(extract_spans(tags)) for tags in side] for side in (predicted, truth))
    return count_items(p, t, name=lambda span: span[0])


def precision_recall_f1(right: int, given: int, true: int) -> dict[str, float]:
    scores = {
        "f1": safe_ratio(2 * right, given + true),
        "precision": safe_ratio(right, given),
        "recall": safe_ratio(right, true),
    }
    return {name: float(score) for name, score in scores.items()}


def extract_spans(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, first word, word after the last) of each span. The tags may follow IOB1, IOB2 or BIOES.

    >>> list(extract_spans(["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    start, previous = 0, OUTSIDE
    for i, tag in enumerate([*tags, OUTSIDE]):
        if previous != OUTSIDE and not continues_span(previous, tag):
            yield split_tag(previous)[1], start, i
        if tag != OUTSIDE and not continues_span(previous, tag):
            start = i
        previous = tag


def continues_span(previous: str, tag: str) -> bool:
    """Whether a word is in the same span as the word before it. A span may also begin with I- or E-, by mistake."""
    if OUTSIDE in (previous, tag):
        return False
    (mark_before, kind_before), (mark, kind) = split_tag(previous), split_tag(tag)
    return kind == kind_before and mark in ("I", "E") and mark_before in ("B", "I")


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into mark and kind. A tag without a mark counts as I-, so equal neighbours form one span.

    >>> split_tag("B-PER"), split_tag("B"), split_tag("NOUN")
    (('B', 'PER'), ('B', ''), ('I', 'NOUN'))
    """
    mark, _, kind = tag.partition("-")
    return (mark, kind) if mark in MARKS else ("I", tag)


def answer_words(answer: str) -> list[str]:
    """Split an answer into words: lower-cased, without ASCII punctuation, and after that without articles.

    >>> answer_words("The (U.S.) army's a-team")
    ['us', 'armys', 'ateam']
    """
    letters = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def word_f1(words: list[str], right: list[str], squad_v2: bool) -> float:
    if squad_v2 and not (words and right):
        return float(words == right)
    return float(safe_ratio(2 * (Counter(words) & Counter(right)).total(), len(words) + len(right)))


def uninformative_metric(measured: Mapping[str, float]) -> str:
    """Name the metric that shows that the predictions do not depend on the texts; "" if none does.

    >>> uninformative_metric({"accuracy": 0.9, "matthews": 0.01})
    'matthews 0.010: predictions look constant or random'
    """
    name = next((name for name in INFORMATIVE if name in measured), None)
    if name is None or abs(measured[name]) >= NEGLIGIBLE:
        return ""
    return f"{name} {measured[name]:.3f}: predictions look constant or random"


def safe_ratio(numerator, denominator):
    return np.divide(
        numerator,
        denominator,
        out=np.zeros(np.broadcast(numerator, denominator).shape),
        where=np.asarray(denominator) != 0,
    )


def split_sums(sums: np.ndarray, parts: int) -> list[np.ndarray]:
    return np.split(sums.astype(float), parts, axis=-1)


def multi_hot(sets: Sequence[Iterable[str]], labels: Sequence[str]) -> np.ndarray:
    """Return [N, labels]: whether each label is in each set."""
    number = {label: i for i, label in enumerate(labels)}
    columns = np.zeros((len(sets), len(labels)), bool)
    for row, names in zip(columns, sets, strict=True):
        row[[number[name] for name in names]] = True
    return columns


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of the values, from 1. Equal values share the mean of their ranks.

    >>> average_ranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def check_lengths(predicted: Sequence, truth: Sequence) -> None:
    if len(predicted) != len(truth):
        raise BertJaxError(f"{len(predicted)} predictions for {len(truth)} examples; give each example one")
    if not len(truth):
        raise BertJaxError("no example to score: the data is empty")
