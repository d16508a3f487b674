"""Texts in, results out, in the order of the texts: one, a list, or a stream in flat memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.inference.batching import tokens_in_batch

CHARACTERS = 256  # of a window, for each token of a batch: some 64 batches of English
LEAST = 16  # characters that any text counts as, so that empty ones end a window too


def results(texts, of_chunk: Callable[[list], Iterable]):
    """The results that `of_chunk` gives for lists of texts: one for one text, a list for a list, else an iterator.

    >>> results("a", lambda texts: [t.upper() for t in texts])
    'A'
    >>> results(["a", "b"], lambda texts: [t.upper() for t in texts])
    ['A', 'B']
    >>> next(results(iter("ab"), lambda texts: [t.upper() for t in texts]))
    'A'
    """
    if isinstance(texts, str | tuple):
        return next(iter(of_chunk([texts])))
    check_order(texts)
    if isinstance(texts, Sequence):
        return list(stream(texts, of_chunk, len(texts)))
    return stream(texts, of_chunk, None)


def check_order(texts) -> None:
    """Refuse what is no series of texts, or has no order in which the results could come."""
    unordered = isinstance(texts, bytes | bytearray | Mapping | Set)
    if unordered or not isinstance(texts, Iterable):
        raise BertJaxError(f"expected a text, a list of texts or an iterator, got a {type(texts).__name__}")
    if isinstance(texts, np.ndarray) and texts.ndim != 1:
        raise BertJaxError(f"expected a list of texts, got an array of {texts.ndim} dimensions")


def stream(texts: Iterable, of_chunk, total: int | None) -> Iterator:
    from tqdm import tqdm

    texts = iter(texts)
    # Enough at a time for batches of even length; no more than that is held of a stream.
    size = tokens_in_batch() // 2
    # On a terminal only, and only where it takes long enough to wonder.
    with tqdm(total=total, unit=" texts", disable=None, delay=2) as bar:
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
