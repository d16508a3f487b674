"""How well answers fit the truth: one function for each kind of answer, each gives {name: figure}.

Every figure lies between 0 and 1 (correlations between -1 and 1), the higher the better; the mean squared error alone
is the better the lower. A ratio of nothing to nothing is 0, and so is the correlation with a constant.
"""

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_jax.errors import BertJaxError

TELLING = ("matthews", "spearman", "f1_micro", "f1")  # about 0 where a model says the same of everything
NOTHING = 0.02
OUTSIDE = "O"
MARKS = ("B", "I", "E", "S")  # a span's first word, one inside, its last word, its only word


def classes(predicted: Sequence[str], truth: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """One label each. With two labels `f1` is that of the second, as in GLUE; `f1_macro` is over all that occur."""
    check(predicted, truth)
    said, true = Counter(predicted), Counter(truth)
    right = Counter(p for p, t in zip(predicted, truth, strict=True) if p == t)
    total, correct = len(truth), right.total()
    each = {label: f1(right[label], said[label], true[label]) for label in sorted(said | true)}
    found = {"accuracy": correct / total}
    if len(labels) == 2:
        found["f1"] = each.get(labels[1], 0.0)
    found["f1_macro"] = sum(each.values()) / len(each)
    spread = [total**2 - sum(n**2 for n in counts.values()) for counts in (said, true)]
    together = correct * total - sum(said[label] * true[label] for label in true)
    found["matthews"] = ratio(together, (spread[0] * spread[1]) ** 0.5)
    return found


def several(predicted: Sequence[set], truth: Sequence[set], labels: Sequence[str]) -> dict[str, float]:
    """Any number of labels each. `accuracy` is the share of examples whose labels are right to the last one."""
    check(predicted, truth)
    said, true, right = Counter[str](), Counter[str](), Counter[str]()
    for p, t in zip(map(set, predicted), map(set, truth), strict=True):
        said.update(p)
        true.update(t)
        right.update(p & t)
    return {
        "accuracy": float(np.mean([set(p) == set(t) for p, t in zip(predicted, truth, strict=True)])),
        "f1_micro": f1(right.total(), said.total(), true.total()),
        "f1_macro": sum(f1(right[label], said[label], true[label]) for label in labels) / len(labels),
    }


def numbers(predicted: Sequence[float], truth: Sequence[float]) -> dict[str, float]:
    check(predicted, truth)
    p, t = np.asarray(predicted, np.float64), np.asarray(truth, np.float64)
    return {
        "pearson": correlation(p, t),
        "spearman": correlation(ranks(p), ranks(t)),
        "mean_squared_error": float(np.mean((p - t) ** 2)),
    }


def spans(predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> dict[str, float]:
    """Tags of words: a span counts where its kind and both its ends are right. `accuracy` is that of the words."""
    counts = span_counts(predicted, truth)
    right, said, true = (
        (sum(column) for column in zip(*counts.values(), strict=True)) if counts else (0, 0, 0)
    )
    words = [p == t for one in zip(predicted, truth, strict=True) for p, t in zip(*one, strict=True)]
    return {
        "f1": f1(right, said, true),
        "precision": ratio(right, said),
        "recall": ratio(right, true),
        "accuracy": ratio(sum(words), len(words)),
    }


def span_counts(
    predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]
) -> dict[str, tuple[int, int, int]]:
    """Kind of span -> how many are right, predicted, true."""
    check(predicted, truth)
    right, said, true = Counter[str](), Counter[str](), Counter[str]()
    for n, (found, wanted) in enumerate(zip(predicted, truth, strict=True)):
        if len(found) != len(wanted):
            raise BertJaxError(
                f"sequence {n} has {len(found)} tags predicted for {len(wanted)} words; give each word one"
            )
        p, t = set(spans_of(found)), set(spans_of(wanted))
        said.update(kind for kind, _, _ in p)
        true.update(kind for kind, _, _ in t)
        right.update(kind for kind, _, _ in p & t)
    return {kind: (right[kind], said[kind], true[kind]) for kind in sorted(said | true)}


def spans_of(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(kind, first word, word behind the last) of each span, whichever of IOB1, IOB2 and BIOES the tags follow.

    >>> list(spans_of(["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    start, before = 0, OUTSIDE
    for i, tag in enumerate([*tags, OUTSIDE]):
        if before != OUTSIDE and not continues(before, tag):
            yield mark_and_kind(before)[1], start, i
        if tag != OUTSIDE and not continues(before, tag):
            start = i
        before = tag


def continues(before: str, tag: str) -> bool:
    """Whether a word is in the span of the word before it. A span may open with I- or E-: whoever tags may err."""
    if OUTSIDE in (before, tag):
        return False
    (mark_before, kind_before), (mark, kind) = mark_and_kind(before), mark_and_kind(tag)
    return kind == kind_before and mark in ("I", "E") and mark_before in ("B", "I")


def mark_and_kind(tag: str) -> tuple[str, str]:
    """A tag without mark is inside: equal neighbours are one span.

    >>> mark_and_kind("B-PER"), mark_and_kind("B"), mark_and_kind("NOUN")
    (('B', 'PER'), ('B', ''), ('I', 'NOUN'))
    """
    mark, _, kind = tag.partition("-")
    return (mark, kind) if mark in MARKS else ("I", tag)


def answers(predicted: Sequence[str], truth: Sequence[Sequence[str]]) -> dict[str, float]:
    """Answers in words, each against all that are right, as SQuAD scores them: `exact`, and `f1` of their words.

    Where questions have no right answer (SQuAD 2.0), the right one is "". The rules of 2.0 are then followed, which
    differ from those of 1.1 where a right answer is nothing but articles and punctuation.
    """
    check(predicted, truth)
    second = not all(map(any, truth))
    exact, overlap = [], []
    for said, right in zip(predicted, truth, strict=True):
        if second:
            right = [answer for answer in right if answer_words(answer)] or [""]
        scores = [word_f1(answer_words(said), answer_words(answer), second) for answer in right]
        exact.append(any(answer_words(said) == answer_words(answer) for answer in right))
        overlap.append(max(scores))
    found = {"exact": float(np.mean(exact)), "f1": float(np.mean(overlap))}
    if second:
        # Of both kinds of question alone: a finder that never answers looks good where many have no answer.
        has = np.array([any(right) for right in truth])
        found |= {"unanswerable": ratio(np.sum(np.array(exact)[~has]), np.sum(~has))}
        found |= {"answerable_exact": ratio(np.sum(np.array(exact)[has]), np.sum(has))}
        found |= {"answerable_f1": ratio(np.sum(np.array(overlap)[has]), np.sum(has))}
    return found


def answer_words(answer: str) -> list[str]:
    """In lower case, without ASCII punctuation, then without articles.

    >>> answer_words("The (U.S.) army's a-team")
    ['us', 'armys', 'ateam']
    """
    letters = "".join(c for c in answer.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def word_f1(said: list[str], right: list[str], second: bool) -> float:
    if second and not (said and right):
        return float(said == right)
    return f1((Counter(said) & Counter(right)).total(), len(said), len(right))


def nothing_learnt(measured: Mapping[str, float]) -> str:
    """Which of the metrics says that the answers have nothing to do with the texts; "" where none says so.

    >>> nothing_learnt({"accuracy": 0.9, "matthews": 0.01})
    'matthews 0.010: it says the same of everything, or guesses'
    """
    name = next((name for name in TELLING if name in measured), None)
    if name is None or abs(measured[name]) >= NOTHING:
        return ""
    return f"{name} {measured[name]:.3f}: it says the same of everything, or guesses"


def f1(right: float, said: float, true: float) -> float:
    return ratio(2 * right, said + true)


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1; equal values share the mean of their ranks.

    >>> ranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    # Equal numbers may differ from their own mean by a rounding error.
    if not (np.ptp(a) and np.ptp(b)):
        return 0.0
    return float(np.clip(a / np.linalg.norm(a) @ (b / np.linalg.norm(b)), -1, 1))


def check(predicted: Sequence, truth: Sequence) -> None:
    if len(predicted) != len(truth):
        raise BertJaxError(f"{len(predicted)} predictions for {len(truth)} examples; give each example one")
    if not len(truth):
        raise BertJaxError("no example to score: the data is empty")
