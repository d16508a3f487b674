"""Turn encodings into the arrays that a model reads: input_ids, token_type_ids, attention_mask, of one length."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.text.array_likes import to_plain_list, to_plain_value
from bert_jax.text.tokenizer import ENCODER_INPUTS, Encoding, Tokenizer
from bert_jax.text.truncation import TruncationWarner

Batch = dict[str, np.ndarray]


def pad_encodings(tokenizer: Tokenizer, encodings: Sequence[Encoding], length: int | None = None) -> Batch:
    """Return the batch [B, L] of the encodings; L is `length`, by default the length of the longest."""
    longest = max((len(encoding.input_ids) for encoding in encodings), default=0)
    length = longest if length is None else length
    check_number(length, "length", is_whole=True)
    if length < longest:
        raise BertJaxError(
            f"length is {length}, but a text has {longest} tokens; set max_length={length} to truncate it"
        )
    batch = {name: np.zeros((len(encodings), length), np.int32) for name in ENCODER_INPUTS}
    batch["input_ids"][:] = tokenizer.special.pad
    for row, encoding in enumerate(encodings):
        values: list[Any] = [encoding.input_ids, encoding.token_type_ids, 1]
        for name, value in zip(ENCODER_INPUTS, values, strict=True):
            batch[name][row, : len(encoding.input_ids)] = value
    return batch


def collate_texts(
    tokenizer: Tokenizer, texts, *, max_length: int | None = None, length: int | None = None
) -> Batch:
    """Return input_ids, token_type_ids and attention_mask: [L] for one text or pair, [B, L] for a list.

    Texts of more than `max_length` tokens are truncated, with a warning. L is `length`, by default that of the longest.
    """
    single = isinstance(texts, str | tuple)
    encodings = tokenizer.encode([texts] if single else to_plain_list(texts), max_length=max_length)
    if max_length is not None:
        TruncationWarner(max_length).count(encodings)
    batch = pad_encodings(tokenizer, encodings, length)
    return {name: array[0] for name, array in batch.items()} if single else batch


def iterate_batches(tokenizer: Tokenizer, texts: Iterable, rows: int, **settings) -> Iterator[Batch]:
    """Yield batches of `rows` texts in their order, read lazily. `settings` are the keywords of `collate_texts`."""
    check_number(rows, "rows", is_whole=True, allowed=Range(1))
    if isinstance(texts, str):
        raise BertJaxError(f'batches reads a list of texts, but "{texts[:40]}" is a single text; give a list')
    texts = map(to_plain_value, to_plain_list(texts))
    while chunk := list(islice(texts, rows)):
        yield collate_texts(tokenizer, chunk, **settings)
