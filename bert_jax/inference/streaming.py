"""Texts in, results out: in the order of the texts, one at once, as a list, or as a stream in flat memory."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from bert_jax.errors import BertJaxError, nearest
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.text.tokenizer import Encoding, Text, Tokenizer

LONG = ("cut", "windows")


def results(texts, of_chunk: Callable[[list], Iterable]):
    """What `of_chunk` makes of lists of texts: one text's result, a list's list, an iterator's iterator.

    >>> results("a", lambda texts: [t.upper() for t in texts])
    'A'
    >>> results(["a", "b"], lambda texts: [t.upper() for t in texts])
    ['A', 'B']
    >>> next(results(iter("ab"), lambda texts: [t.upper() for t in texts]))
    'A'
    """
    if isinstance(texts, str | tuple):
        return next(iter(of_chunk([texts])))
    if not isinstance(texts, Iterable):
        raise BertJaxError(f"expected a text, a list of texts or an iterator, got a {type(texts).__name__}")
    if isinstance(texts, Sequence):
        return list(stream(texts, of_chunk, len(texts)))
    return stream(texts, of_chunk, None)


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


class Cutter:
    """Texts to encodings of at most `max_length` tokens: cut, which is counted and said, or in windows."""

    def __init__(self, tokenizer: Tokenizer, max_length: int, long: str = "cut"):
        if long not in LONG:
            raise BertJaxError(f'no way "{long}" of dealing with long texts; {nearest(long, LONG)}')
        self.tokenizer, self.max_length, self.long = tokenizer, max_length, long
        self.said = False

    def __call__(self, texts: Sequence[Text]) -> list[list[Encoding]]:
        if self.long == "windows":
            overlap = self.max_length // 4
            return self.tokenizer.windows(texts, max_length=self.max_length, overlap=overlap)
        encodings = self.tokenizer.encode(texts, max_length=self.max_length)
        dropped = [encoding.dropped for encoding in encodings if encoding.dropped]
        if dropped and not self.said:
            self.said = True
            warnings.warn(
                f"{len(dropped)} of {len(texts)} texts are longer than {self.max_length} tokens and were cut, "
                f'the longest by {max(dropped)} tokens; long="windows" reads all of them',
                stacklevel=6,
            )
        return [[encoding] for encoding in encodings]
