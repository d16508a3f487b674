"""Encode pairs for a bi-encoder: each text separately; the ids of both follow one another in one sequence."""

from collections.abc import Sequence

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer import Encoding, Text, Tokenizer, longest_first


def encode_separately(tokenizer: Tokenizer, pairs: Sequence[Text], max_length: int) -> list[Encoding]:
    """Encode pairs with at most `max_length` tokens each; the longer text is truncated first."""
    single = next((text for text in pairs if isinstance(text, str)), None)
    if single is not None:
        raise BertJaxError(f'this model takes pairs of texts, but "{single[:40]}" is a single text')
    firsts, seconds = (tokenizer.encode([pair[n] for pair in pairs]) for n in range(2))
    return [
        join_encodings(truncate_pair(tokenizer, pair, first, second, max_length))
        for pair, first, second in zip(pairs, firsts, seconds, strict=True)
    ]


def truncate_pair(
    tokenizer: Tokenizer, pair: Text, first: Encoding, second: Encoding, max_length: int
) -> list[Encoding]:
    lengths = len(first.input_ids), len(second.input_ids)
    if sum(lengths) <= max_length:
        return [first, second]
    keep = longest_first(*lengths, max_length)
    return [tokenizer.encode([text], max_length=most)[0] for text, most in zip(pair, keep, strict=True)]


def join_encodings(encodings: Sequence[Encoding]) -> Encoding:
    """Join encodings into one, in which each still starts with its own [CLS].

    >>> join_encodings([Encoding([5, 6], [0, 0], [(0, 0), (0, 3)]), Encoding([7], [0], [(0, 4)])]).text_starts
    (0, 2)
    """
    begins = [0]
    for encoding in encodings[:-1]:
        begins.append(begins[-1] + len(encoding.input_ids))
    return Encoding(
        [i for encoding in encodings for i in encoding.input_ids],
        [segment for encoding in encodings for segment in encoding.token_type_ids],
        [place for encoding in encodings for place in encoding.offsets],
        sum(encoding.dropped for encoding in encodings),
        tuple(
            range(begin + span.start, begin + span.stop)
            for begin, encoding in zip(begins, encodings, strict=True)
            for span in encoding.spans
        ),
        tuple(begins),
    )
