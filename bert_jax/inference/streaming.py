"""Texts in, results out, in the order of the texts: one, a list, or a stream in flat memory. All methods of a model
read their texts here."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.terminal import hides_bars
from bert_jax.text.series import as_list, plain

CHARACTERS = 256  # of a window, for each token of a batch: some 64 batches of English
LEAST = 16  # characters that any text counts as, so that empty ones end a window too


def results(
    texts, of_chunk: Callable[[list], Iterable], gather: Callable[[list], Any] = list, at_once: int = 0
):
    """The results that `of_chunk` gives for lists of texts: one for one text; for a list, an array or a column of a
    data frame what `gather` makes of them; for any other iterable an iterator.

    `at_once` is how many texts `of_chunk` gets at most; 0: as many as batches of even length take.

    >>> results("a", lambda texts: [t.upper() for t in texts])
    'A'
    >>> results(["a", "b"], lambda texts: [t.upper() for t in texts])
    ['A', 'B']
    >>> next(results(iter("ab"), lambda texts: [t.upper() for t in texts]))
    'A'
    """
    if isinstance(texts, str | tuple):
        return next(iter(of_chunk([texts])))
    texts = series(texts)
    if isinstance(texts, Sequence):
        return gather(list(stream(texts, of_chunk, len(texts), at_once)))
    return stream(texts, of_chunk, None, at_once)


def series(texts):
    """A list where all texts are there, else an iterable; what is neither, or has no order in which results could come,
    is refused."""
    unordered = isinstance(texts, bytes | bytearray | Mapping | Set)
    if unordered or not isinstance(texts, Iterable):
        raise BertJaxError(f"expected a text, a list of texts or an iterator, got a {type(texts).__name__}")
    texts = as_list(texts)
    return texts if isinstance(texts, Sequence) else map(plain, texts)


def stacked(width: int) -> Callable[[list], np.ndarray]:
    """Gathers vectors of this size in one array [N, D]."""
    return lambda vectors: np.stack(vectors) if vectors else np.zeros((0, width), np.float32)


def stream(texts: Iterable, of_chunk, total: int | None, at_once: int = 0) -> Iterator:
    from tqdm import tqdm

    texts = iter(texts)
    # Enough at a time for batches of even length; no more than that is held of a stream.
    size = at_once or tokens_in_batch() // 2
    # Only where it takes long enough to wonder, and in more than one part, for a bar moves between them.
    hidden = True if total is not None and total <= size else hides_bars()
    with tqdm(total=total, unit=" texts", disable=hidden, delay=2) as bar:
        while chunk := list(islice(texts, size)):
            yield from of_chunk(chunk)
            bar.update(len(chunk))


def windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts that are sorted by length together: more pad less, and long ones fill a window sooner, so that the memory
    is that of so many characters.

    >>> [len(window) for window in windows(["a", "b" * 10**7, "c"])]
    [2, 1]
    """
    window, size, most = [], 0, CHARACTERS * tokens_in_batch()
    for text in texts:
        window.append(text)
        size += max(len(text), LEAST)
        if size >= most:
            yield window
            window, size = [], 0
    if window:
        yield window
