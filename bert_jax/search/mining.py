"""Hard negatives: texts that an embedder finds near an anchor, and that are no positives of it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bert_jax.data.examples.groups import Group
from bert_jax.retrieval import nearest
from bert_jax.search.vectors import Vectors


@dataclass(frozen=True)
class Limits:
    """Which texts near an anchor are its negatives."""

    negatives: int = 3  # of an anchor
    first: int = 0  # the nearest texts that are passed over: they may be right, too
    last: int = 100  # the farthest that is looked at, by its place
    # A negative's cosine is lower than the positive's by this share of it at least.
    margin: float = 0.05
    least: float = -1.0  # cosine
    most: float = 1.0


@dataclass
class Mined:
    """What was mined, counted."""

    groups: int = 0
    too_few: int = 0  # anchors with fewer negatives than were wanted, which are left out


def mine(
    groups: Sequence[Group], corpus: Sequence[str], vectors: Vectors, limits: Limits, counts: Mined
) -> Iterator[dict[str, str]]:
    """Rows of an anchor, its positive and its negatives, in the order of the groups. Candidates are the texts of the
    `corpus` and all positives."""
    positives: dict[str, set[str]] = defaultdict(set)  # of an anchor, or of a label
    for group in groups:
        positives[group.alike or group.texts[0]].update(group.texts if group.alike else group.texts[1:2])
    texts = list(dict.fromkeys([*(group.texts[1] for group in groups), *corpus]))
    place = {text: n for n, text in enumerate(texts)}
    width = len(str(len(texts)))
    ids = [str(n).zfill(width) for n in range(len(texts))]
    documents = vectors.of(texts, "document")
    anchors = vectors.of([group.texts[0] for group in groups], "query")
    depth = limits.last + max(map(len, positives.values()), default=0) + 1  # positives take no place
    for group, anchor, (order, scores) in zip(
        groups, anchors, nearest(anchors, documents, ids, depth), strict=True
    ):
        right = float(anchor @ documents[place[group.texts[1]]])
        known = positives[group.alike or group.texts[0]] | {group.texts[0]}
        others = [(n, score) for n, score in zip(order, scores, strict=True) if texts[n] not in known]
        ceiling = min(limits.most, right - limits.margin * abs(right))
        chosen = [
            texts[n] for n, score in others[limits.first : limits.last] if limits.least <= score <= ceiling
        ][: limits.negatives]
        if len(chosen) < limits.negatives:
            counts.too_few += 1
            continue
        counts.groups += 1
        names = (f"negative_{n}" for n in range(1, len(chosen) + 1))
        yield {"anchor": group.texts[0], "positive": group.texts[1], **dict(zip(names, chosen, strict=True))}
