"""Metrics of tagged words: the spans that their tags mark."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.metrics.classification import count_items
from bert_jax.metrics.score_sums import ScoreSums, check_lengths, safe_ratio

OUTSIDE = "O"
MARKS = ("B", "I", "E", "S")  # a span's first word, a word inside, its last word, its only word


def score_spans(predicted: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> ScoreSums:
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


def count_spans(predicted: Iterable[Sequence[str]], truth: Iterable[Sequence[str]]):
    """Count the spans of each kind: {kind: (number right, number predicted, number true)}."""
    p, t = ([set(extract_spans(tags)) for tags in side] for side in (predicted, truth))
    return count_items(p, t, name=lambda span: span[0])


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
    (mark_before, type_before), (mark, span_type) = split_tag(previous), split_tag(tag)
    return span_type == type_before and mark in ("I", "E") and mark_before in ("B", "I")


def needs_predecessor(tag: str) -> bool:
    """Whether a tag marks a word that is not the first of its span: I- or E-, or a tag without a mark."""
    return tag != OUTSIDE and split_tag(tag)[0] in ("I", "E")


def find_unstarted_spans(tags: Sequence[str]) -> list[int]:
    """Return the index of each I- and E- that continues no span. In IOB2 and BIOES there are none.

    >>> [find_unstarted_spans(tags.split()) for tags in ("B-PER I-PER O", "O I-PER I-PER", "B-PER I-LOC")]
    [[], [1], [1]]
    """
    neighbours = enumerate(pairwise([OUTSIDE, *tags]))
    return [
        i for i, (before, tag) in neighbours if needs_predecessor(tag) and not continues_span(before, tag)
    ]


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into mark and kind. A tag without a mark counts as I-, so equal neighbours form one span.

    >>> split_tag("B-PER"), split_tag("B"), split_tag("NOUN")
    (('B', 'PER'), ('B', ''), ('I', 'NOUN'))
    """
    mark, _, span_type = tag.partition("-")
    return (mark, span_type) if mark in MARKS else ("I", tag)
