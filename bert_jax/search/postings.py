"""Postings: for each term, the passages that have it, each with a number. Keywords and sparse vectors are found by
them, and both explain a score by what each term of the query adds to it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax.data.npy_writer import npy_writer
from bert_jax.search.segment_files import SegmentFiles, is_ascending

# Terms that stand side by side if they are equal, their passages, and the numbers.
Window = tuple[np.ndarray, np.ndarray, np.ndarray]
# Of each segment: passages, and what a term adds to their scores.
TermScores = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class PostingFiles:
    """The names of the files of one kind of postings, and the type of its numbers."""

    starts: str
    passages: str
    numbers: str
    dtype: type[np.generic]

    @property
    def names(self) -> tuple[str, str, str]:
        return self.starts, self.passages, self.numbers


def write_postings(
    folder: Path, posting_files: PostingFiles, counts: np.ndarray, windows: Iterable[Window]
) -> None:
    """Put each term's postings from all windows side by side; `counts` are the postings of each term."""
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    with npy_writer(folder / posting_files.starts, np.int64) as file:
        file.append(starts)
    with (
        npy_writer(folder / posting_files.passages, np.int32) as new_passages,
        npy_writer(folder / posting_files.numbers, posting_files.dtype) as new_numbers,
    ):
        passages, numbers = (file.map_zeros(int(starts[-1])) for file in (new_passages, new_numbers))
        ends = starts[:-1].copy()
        for terms, of_window, numbers_of_window in windows:
            first = np.flatnonzero(np.diff(terms, prepend=-1))
            sizes = np.diff(first, append=len(terms))
            rows = ends[terms] + np.arange(len(terms)) - first.repeat(sizes)
            passages[rows], numbers[rows] = of_window, numbers_of_window
            ends[terms[first]] += sizes
        passages.flush()
        numbers.flush()


@dataclass(frozen=True)
class Postings:
    """The passages of each term of a segment: rows starts[i] to starts[i + 1] belong to term i."""

    files: SegmentFiles
    posting_files: PostingFiles
    starts: np.ndarray
    passages: np.ndarray
    numbers: np.ndarray
    size: int  # of the segment, in passages

    @classmethod
    def open(cls, files: SegmentFiles, posting_files: PostingFiles, terms: int, size: int) -> "Postings":
        starts = files.array(posting_files.starts, np.int64, terms + 1)
        passages, numbers = (
            files.array(posting_files.passages, np.int32, None),
            files.array(posting_files.numbers, posting_files.dtype, None),
        )
        if len(passages) != len(numbers) or not is_ascending(starts, 0, len(passages)):
            raise files.damage_error(posting_files.starts)
        return cls(files, posting_files, starts, passages, numbers, size)

    def find(self, term: int | None, live: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the passages with a term that are not removed, and their numbers; none without a term."""
        rows = slice(0) if term is None else slice(self.starts[term], self.starts[term + 1])
        passages, numbers = self.passages[rows], self.numbers[rows]
        if not is_ascending(passages, 0, self.size - 1):
            raise self.files.damage_error(self.posting_files.passages)
        if live is not None:
            kept = live[passages]
            passages, numbers = passages[kept], numbers[kept]
        return passages, numbers


@dataclass(frozen=True)
class WeightedQuery:
    """The terms of a query, as they are written and as they are looked up, and what each adds to the scores. Order and
    repetitions are kept, because float32 sums depend on them."""

    terms: tuple[tuple[str, str | int], ...]
    scores: dict[str | int, TermScores]

    def score_passages(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """Return the scores of the passages of each segment; 0 if a passage has no term of the query."""
        sums = [np.zeros(size, np.float32) for size in sizes]
        for _, term in self.terms:
            for sums_of_segment, (passages, added) in zip(sums, self.scores[term], strict=True):
                np.add.at(sums_of_segment, passages, added)  # faster than +=, which first gathers
        return sums

    def explain(self, segment: int, passage: int) -> dict[str, float]:
        """Return what each term adds to the score of a passage, with its repetitions in the query and the terms that
        are looked up alike, which go by the first one."""
        added = {}
        for looked_up, scores in self.scores.items():
            passages, parts = scores[segment]
            position = int(np.searchsorted(passages, passage))
            if position < len(passages) and passages[position] == passage:
                written = [name for name, other in self.terms if other == looked_up]
                added[written[0]] = float(parts[position]) * len(written)
        return added
