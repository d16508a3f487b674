"""Rows packed with full sentences: RoBERTa's input without sentence pairs.

Documents are laid end to end, in a random order of the plan. Each row takes whole sentences until the next one does not
fit. The sentences of one document in a row form a sequence, `[CLS] ... [SEP]`, that attends to nothing else in the row.
Only a sentence longer than a row is cut, and its rest counts as the next sentence: nothing is dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bert_jax.data.corpus.corpus_directory import CorpusSplit
from bert_jax.data.corpus.segment_plan import Part, row_type
from bert_jax.data.randomness import permute


@dataclass(frozen=True)
class Rows:
    spans: int  # most sequences in a row
    name: str = "full_sentences"

    def make_rows(self, corpus_split: CorpusSplit, length: int, key, positions: np.ndarray) -> Iterator[Part]:
        documents = permute(positions, corpus_split.count, key)
        start, size, document = cut_long_sentences(corpus_split, documents, length - 2)
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
        used = int((corpus_split.documents[documents + 1] - corpus_split.documents[documents]).sum())
        yield table, {"tokens_cut": 0, "sentences_dropped": 0, "sentences_used": used}


def cut_long_sentences(
    corpus_split: CorpusSplit, documents: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the start, size and document rank of all sentences, with overlong sentences cut into pieces.

    `documents` gives the order of the documents; the rank is an index into it."""
    first, stop = (corpus_split.documents[documents + n].astype(np.int64) for n in (0, 1))
    sentence, rank = concatenated_ranges(first, stop - first)
    start, end = (corpus_split.sentences[sentence + n].astype(np.int64) for n in (0, 1))
    size = end - start
    parts = -(-size // room)
    within, owner = concatenated_ranges(np.zeros(len(size), np.int64), parts)
    return start[owner] + within * room, np.minimum(size[owner] - within * room, room), rank[owner]


def concatenated_ranges(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the ranges from `first[i]` up to `first[i] + count[i]`; return them, and the i of each element.

    >>> [a.tolist() for a in concatenated_ranges(np.array([5, 9]), np.array([2, 1]))]
    [[5, 6, 9], [0, 0, 1]]
    """
    owner = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return first[owner] + np.arange(len(owner)) - begins[owner], owner
