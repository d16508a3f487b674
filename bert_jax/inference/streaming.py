"""Map texts to results in order: one text, a list, or a stream in constant memory.

All methods of a model read their texts here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.grouping import group_by_size
from bert_jax.core.progress import Progress
from bert_jax.core.typed_json import type_name
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.text.array_likes import to_plain_list, to_plain_value

CHARACTERS = 256  # of a window, per token of a batch: some 64 batches of English
Vectors = NDArray[np.float32]  # one or several
LEAST = 16  # characters that any text counts as at least, so that empty texts fill a window, too


class Column(Protocol):
    """A column of a data frame."""

    def to_list(self) -> list[Any]: ...


# What the methods of a model read. A tuple is a pair, but for vectors (`encode`, `similarity`) it is texts, as in
# sentence-transformers: there a pair stands in a list. For a type checker the first of these that fits counts: a text
# is a sequence of texts, too, and a list is iterable.
TextOrPair = str | tuple[str, str]
Texts = Sequence[TextOrPair] | np.ndarray | Column
TextStream = Iterable[TextOrPair]


def map_texts(
    texts,
    process_chunk: Callable[[list], Iterable],
    gather: Callable[[list], Any] = list,
    at_once: int = 0,
    shows_progress: bool | None = None,
):
    """Return the results of `process_chunk`, which is called with lists of texts.

    Return one result for one text; `gather` of all results for a list, an array or a column of a data frame; and an
    iterator of results for any other iterable. `process_chunk` gets at most `at_once` texts at a time; 0 chooses a
    number that gives batches of even lengths. By default progress is shown if it takes long: a bar on a terminal, lines
    elsewhere.

    >>> map_texts("a", lambda texts: [t.upper() for t in texts])
    'A'
    >>> map_texts(["a", "b"], lambda texts: [t.upper() for t in texts])
    ['A', 'B']
    >>> next(map_texts(iter("ab"), lambda texts: [t.upper() for t in texts]))
    'A'
    """
    if isinstance(texts, str | tuple):
        return next(iter(process_chunk([texts])))
    texts = ordered_texts(texts)
    if isinstance(texts, Sequence):
        return gather(list(stream_results(texts, process_chunk, len(texts), at_once, shows_progress)))
    return stream_results(texts, process_chunk, None, at_once, shows_progress)


def ordered_texts(texts):
    """Return texts as a list if all of them are in memory, else as an iterable.

    Refuse anything else, and collections without an order, because results come in the order of the texts.
    """
    unordered = isinstance(texts, bytes | bytearray | Mapping | Set)
    if unordered or not isinstance(texts, Iterable):
        raise BertJaxError(f"expected a text, a list of texts or an iterator, got {type_name(texts)}")
    texts = to_plain_list(texts)
    return texts if isinstance(texts, Sequence) else map(to_plain_value, texts)


def check_batch_options(batch_size: object, shows_progress: object) -> None:
    """Refuse wrong values of arguments of sentence-transformers; None leaves the choice to `map_texts`."""
    if batch_size is not None:
        check_number(batch_size, "batch_size", is_whole=True, allowed=Range(1))
    if shows_progress is not None:
        check_flag(shows_progress, "show_progress_bar")


def vector_stacker(width: int) -> Callable[[list], np.ndarray]:
    """Return a function that stacks vectors of this size into one array [N, D]."""
    return lambda vectors: np.stack(vectors) if vectors else np.zeros((0, width), np.float32)


def stream_results(
    texts: Iterable, process_chunk, total: int | None, at_once: int = 0, shows_progress: bool | None = None
) -> Iterator:
    texts = iter(texts)
    # Enough at a time for batches of even lengths; no more of a stream is held in memory.
    size = at_once or tokens_per_batch() // 2
    # A bar moves only between chunks, so it is hidden if there is only one.
    if shows_progress is None and total is not None and total <= size:
        shows_progress = False
    with Progress("texts", total, shown=shows_progress) as progress:
        while chunk := list(islice(texts, size)):
            yield from process_chunk(chunk)
            progress.advance(len(chunk))


def split_into_windows(texts: Iterable[str]) -> Iterator[list[str]]:
    """Split texts into windows, in each of which the texts are sorted by length before they are batched.

    Larger windows need less padding. A window is limited by its characters, so that memory use is bounded.

    >>> [len(window) for window in split_into_windows(["a", "b" * 10**7, "c"])]
    [2, 1]
    """
    return group_by_size(texts, CHARACTERS * tokens_per_batch(), lambda text: max(len(text), LEAST))
