"""Rows packed with full sentences: RoBERTa's input without sentence pairs.

Documents are laid end to end, in a random order of the plan. Each row takes whole sentences until the next one does not
fit. The sentences of one document in a row form a sequence, `[CLS] ... [SEP]`, that attends to nothing else in the row.
Only a sentence longer than a row is cut, and its rest counts as the next sentence: nothing is dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bert_jax.data.corpus.directory import Part
from bert_jax.data.corpus.plan import row_type
from bert_jax.data.randomness import permuted

BLOCK = 1 << 16  # documents laid end to end at once; bounds the memory


@dataclass(frozen=True)
class Rows:
    spans: int  # most sequences in a row
    name: str = "full_sentences"

    def blocks(self, part: Part, length: int, key) -> Iterator[tuple[np.ndarray, dict[str, int]]]:
        for first in range(0, part.count, BLOCK):
            places = np.arange(first, min(first + BLOCK, part.count))
            yield self._block(part, length, permuted(places, part.count, key))

    def _block(self, part: Part, length: int, documents: np.ndarray):
        start, size, document = pieces(part, documents, length - 2)
        # before: the number of tokens before piece i. filled: the number of tokens up to and including piece i, with
        # [CLS] and [SEP] of each earlier document.
        before = np.concatenate([[0], np.cumsum(size)])
        filled = before[1:] + 2 * document
        first_of = np.searchsorted(document, np.arange(len(documents) + self.spans + 1))
        stop = np.searchsorted(filled, before[:-1] + 2 * document + length - 2, side="right")
        stop = np.minimum(stop, first_of[document + self.spans])
        begins = [0]
        while (following := int(stop[begins[-1]])) < len(size):
            begins.append(following)
        # A sequence begins where a row or a document begins.
        row_begins = np.zeros(len(size), bool)
        row_begins[begins] = True
        pack_begins = np.flatnonzero(row_begins | np.diff(document, prepend=-1).astype(bool))
        row = np.cumsum(row_begins)[pack_begins] - 1
        slot = np.arange(len(row)) - np.searchsorted(row, row)
        table = np.zeros(len(begins), row_type(self.spans))
        table["start"][row, slot] = start[pack_begins]
        table["length"][row, slot] = np.diff(before[np.append(pack_begins, len(size))])
        used = int((part.documents[documents + 1] - part.documents[documents]).sum())
        return table, {"tokens_cut": 0, "sentences_dropped": 0, "sentences_used": used}


def pieces(part: Part, documents: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the start, size and document rank of all sentences, with overlong sentences cut into pieces.

    `documents` gives the order of the documents; the rank is an index into it."""
    first = part.documents[documents].astype(np.int64)
    sentence, rank = concatenated_ranges(first, part.documents[documents + 1].astype(np.int64) - first)
    start = part.sentences[sentence].astype(np.int64)
    size = part.sentences[sentence + 1].astype(np.int64) - start
    parts = -(-size // room)
    within, whole = concatenated_ranges(np.zeros(len(size), np.int64), parts)
    return start[whole] + within * room, np.minimum(size[whole] - within * room, room), rank[whole]


def concatenated_ranges(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the ranges from `first[i]` up to `first[i] + count[i]`; return them, and the i of each element.

    >>> [a.tolist() for a in concatenated_ranges(np.array([5, 9]), np.array([2, 1]))]
    [[5, 6, 9], [0, 0, 1]]
    """
    owner = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return first[owner] + np.arange(len(owner)) - begins[owner], owner
