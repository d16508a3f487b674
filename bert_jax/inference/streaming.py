"""Map texts to results in order: one text, a list, or a stream in constant memory.

All methods of a model read their texts here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import hides_bars
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.text.series import as_list, plain

CHARACTERS = 256  # of a window, per token of a batch: some 64 batches of English
LEAST = 16  # characters that any text counts as at least, so that empty texts fill a window, too


def results(
    texts, of_chunk: Callable[[list], Iterable], gather: Callable[[list], Any] = list, at_once: int = 0
):
    """Return the results of `of_chunk`, which is called with lists of texts.

    Return one result for one text; `gather` of all results for a list, an array or a column of a data frame; and an
    iterator of results for any other iterable. `of_chunk` gets at most `at_once` texts at a time; 0 chooses a number
    that gives batches of even lengths.

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
    """Return texts as a list if all of them are in memory, else as an iterable.

    Refuse anything else, and collections without an order, because results come in the order of the texts.
    """
    unordered = isinstance(texts, bytes | bytearray | Mapping | Set)
    if unordered or not isinstance(texts, Iterable):
        raise BertJaxError(f"expected a text, a list of texts or an iterator, got a {type(texts).__name__}")
    texts = as_list(texts)
    return texts if isinstance(texts, Sequence) else map(plain, texts)


def stacked(width: int) -> Callable[[list], np.ndarray]:
    """Return a function that stacks vectors of this size into one array [N, D]."""
    return lambda vectors: np.stack(vectors) if vectors else np.zeros((0, width), np.float32)


def stream(texts: Iterable, of_chunk, total: int | None, at_once: int = 0) -> Iterator:
    from tqdm import tqdm

    texts = iter(texts)
    # Enough at a time for batches of even lengths; no more of a stream is held in memory.
    size = at_once or tokens_in_batch() // 2
    # A bar moves only between chunks, so it is hidden if there is only one.
    hidden = True if total is not None and total <= size else hides_bars()
    with tqdm(total=total, unit=" texts", disable=hidden, delay=2) as bar:
        while chunk := list(islice(texts, size)):
            yield from of_chunk(chunk)
            bar.update(len(chunk))


def windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Split texts into windows, in each of which the texts are sorted by length before they are batched.

    Larger windows need less padding. A window is limited by its characters, so that memory use is bounded.

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
