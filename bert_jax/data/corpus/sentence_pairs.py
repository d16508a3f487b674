"""Pairs of segments: next-sentence prediction as published with BERT, and ALBERT's sentence order.

A document is cut into chunks of whole sentences that reach a target length, and a chunk is cut in two at a random
sentence. For next-sentence prediction, the second half is replaced half of the time by text from another document, and
the replaced half is used for the next chunk. For sentence order, the halves are swapped half of the time. The target
length is the row's length, or, by default for one document in ten, a random shorter one, so that the encoder sees short
texts too.

All documents of a block are processed in parallel: each turn makes the next example of every document that has text
left, with NumPy operations over these documents. The random draws of a document come from its own key, so the result
does not depend on the blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.corpus_directory import CorpusSplit
from bert_jax.data.corpus.segment_plan import Part, row_type
from bert_jax.data.randomness import count_heads, random_bits, to_integers, to_unit_floats

HALF = 0.5  # share of the pairs that are random or swapped
DRAWS = 8  # counters reserved for the random draws of one example


@dataclass(frozen=True)
class Pairs:
    """`name` is "next_sentence" (label 1: the second segment is from another document) or "sentence_order" (label 1:
    the segments are swapped)."""

    name: str
    short: float = 0.1  # share of documents with a shorter target length
    spans: ClassVar[int] = 2
    specials: ClassVar[int] = 3  # [CLS] A [SEP] B [SEP]

    def make_rows(self, corpus_split: CorpusSplit, length: int, key, documents: np.ndarray) -> Iterator[Part]:
        if self.name == "next_sentence" and corpus_split.count < 2:
            raise BertJaxError(
                "next-sentence pairs need two documents and the corpus has one; separate its documents, "
                "or set --config.data.sentence_objective=sentence_order"
            )
        room = length - self.specials
        document_keys = random_bits(key, documents)
        target = np.full(len(documents), room, np.int64)
        short = to_unit_floats(random_bits(document_keys, 0)) < self.short
        target[short] = 2 + to_integers(random_bits(document_keys[short], 1), room - 1)
        at = corpus_split.documents[documents].astype(np.int64)  # the next sentence of each document
        end = corpus_split.documents[documents + 1].astype(np.int64)
        walking, turn = np.flatnonzero(at < end), 0
        while walking.size:
            turn += 1
            keys = random_bits(document_keys[walking], DRAWS * turn)
            table, at[walking], counts = self._turn(
                corpus_split, room, target[walking], at[walking], end[walking], documents[walking], keys
            )
            yield table, counts
            walking = walking[at[walking] < end[walking]]

    def _turn(self, corpus_split, room, target, at, end, documents, keys):
        """Make one example of each document; return the table rows, each document's next sentence, and counts of what
        was used and dropped."""
        sentences, starts = corpus_split.sentences, corpus_split.documents
        stop = find_stop_sentence(sentences, at, target, end)
        is_divisible = stop - at > 1
        drawn = 1 + to_integers(random_bits(keys, 0), np.maximum(stop - at - 1, 1))
        middle = at + np.where(is_divisible, drawn, 1)
        coin = to_unit_floats(random_bits(keys, 1)) < HALF
        start = np.stack([sentences[at], sentences[middle]], axis=1).astype(np.int64)
        length = np.stack([sentences[middle], sentences[stop]], axis=1).astype(np.int64) - start
        weight = np.ones(len(at), np.uint8)
        if self.name == "next_sentence":
            label = coin | ~is_divisible  # a chunk of one sentence has no second half
            ahead = 1 + to_integers(random_bits(keys, 2), corpus_split.count - 1)
            other = (documents + ahead) % corpus_split.count
            first, last = starts[other].astype(np.int64), starts[other + 1].astype(np.int64)
            begin = first + to_integers(random_bits(keys, 3), last - first)
            finish = find_stop_sentence(sentences, begin, target - length[:, 0], last)
            start[label, 1] = sentences[begin[label]]
            length[label, 1] = sentences[finish[label]] - sentences[begin[label]]
            following = np.where(label, middle, stop)  # the replaced half is used for the next example
        else:
            label = coin & is_divisible
            weight[~is_divisible] = 0  # a single sentence has no order; it is kept for the masked words
            following = stop
        cut = excess(length, room)
        front = np.stack([count_heads(random_bits(keys, 4 + n), cut[:, n]) for n in range(2)], axis=1)
        own = np.ones_like(length, bool)  # the spans from the document itself, whose sentences are used up
        if self.name == "next_sentence":
            own[label, 1] = False
        dropped = count_dropped_sentences(sentences, start[own], length[own], front[own], cut[own])
        counts = {
            "tokens_cut": int(cut[own].sum()),
            "sentences_dropped": dropped,
            "sentences_used": int((following - at).sum()),
        }
        start, length = start + front, length - cut
        if self.name == "sentence_order":
            start[label], length[label] = start[label, ::-1], length[label, ::-1]
        table = np.empty(len(at), row_type(self.spans))
        table["start"], table["length"], table["label"], table["weight"] = start, length, label, weight
        return table, following, counts


def find_stop_sentence(
    sentences: np.ndarray, at: np.ndarray, tokens: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Return the first sentence after `at` before which the text from `at` on has at least `tokens` tokens, but at most
    `end`."""
    wanted = sentences[at].astype(np.int64) + np.maximum(tokens, 1)
    return np.minimum(np.searchsorted(sentences, wanted.astype(sentences.dtype)), end)


def excess(length: np.ndarray, room: int) -> np.ndarray:
    """Return how many tokens each side of a pair loses if always the longer side is shortened until both fit.

    >>> excess(np.array([[90, 20], [60, 60], [10, 20]]), 80).tolist()
    [[30, 0], [20, 20], [0, 0]]
    """
    over = np.maximum(length.sum(axis=1) - room, 0)
    longer = np.minimum(over, np.abs(length[:, 0] - length[:, 1]))
    both = over - longer  # once the sides are equal, they lose tokens in turn, the second side first
    first_longer = length[:, 0] > length[:, 1]
    first = np.where(first_longer, longer, 0) + both // 2
    return np.stack([first, over - first], axis=1)


def count_dropped_sentences(sentences, start, length, front, cut) -> int:
    """Count the sentences that lie completely in the parts cut from the front and the back of spans."""
    if not cut.any():
        return 0
    rows = np.flatnonzero(cut)
    start, length, front, cut = start[rows], length[rows], front[rows], cut[rows]
    end = start + length
    index_type = sentences.dtype
    first, last = (np.searchsorted(sentences, edge.astype(index_type)) for edge in (start, end))
    ahead = np.searchsorted(sentences, (start + front).astype(index_type), side="right") - 1 - first
    behind = last - np.searchsorted(sentences, (end - (cut - front)).astype(index_type))
    return int(np.minimum(ahead + behind, last - first).sum())
