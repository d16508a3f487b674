"""How texts are read: truncated or in windows, and the two texts of a pair together or separately."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_jax.core.errors import BertJaxError
from bert_jax.text.encoding import Encoding, Text, join_encodings
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import longest_first

LONG = ("truncate", "windows")


@dataclass(frozen=True)
class EncodingOptions:
    """How texts are read: the maximum number of tokens, what to do with longer texts, the number of tokens that
    neighbouring windows share, whether the texts of a pair are encoded separately, and which of them is truncated."""

    max_length: int
    long_texts: str = "truncate"
    overlap: int = -1  # -1: the usual overlap for the kind of prediction
    separate_texts: bool = False
    truncation: str = "longest_first"  # of pairs: a name in TRUNCATIONS

    def __post_init__(self):
        if not isinstance(self.long_texts, str) or self.long_texts not in LONG:
            raise BertJaxError(f'long_texts must be "truncate" or "windows", not "{self.long_texts!s:.60}"')
        if self.separate_texts and self.long_texts == "windows":
            raise BertJaxError(
                "a model that encodes the texts of a pair separately cannot read them in windows; leave "
                "long_texts=windows out, or train a model with --config.model.pair_encoding=cross_encoder"
            )

    def encode(self, tokenizer: Tokenizer, texts: Sequence[Text]) -> list[list[Encoding]]:
        """Encode each text, truncated, or in as many windows as it needs."""
        if self.separate_texts:
            return [[encoding] for encoding in encode_separately(tokenizer, texts, self.max_length)]
        if self.long_texts == "windows":
            overlap = self.max_length // 4 if self.overlap < 0 else self.overlap
            return tokenizer.windows(texts, max_length=self.max_length, overlap=overlap)
        encodings = tokenizer.encode(texts, max_length=self.max_length, truncation=self.truncation)
        return [[encoding] for encoding in encodings]


def encode_separately(tokenizer: Tokenizer, pairs: Sequence[Text], max_length: int) -> list[Encoding]:
    """Encode pairs with at most `max_length` tokens each; the longer text is truncated first."""
    single = next((text for text in pairs if isinstance(text, str)), None)
    if single is not None:
        raise BertJaxError(f'this model takes pairs of texts, but "{single[:40]}" is a single text')
    firsts, seconds = (tokenizer.encode([pair[n] for pair in pairs]) for n in range(2))
    joined = []
    for pair, first, second in zip(pairs, firsts, seconds, strict=True):
        encodings = [first, second]
        lengths = len(first.input_ids), len(second.input_ids)
        if sum(lengths) > max_length:
            keep = zip(pair, longest_first(*lengths, max_length), strict=True)
            encodings = [tokenizer.encode([text], max_length=most)[0] for text, most in keep]
        joined.append(join_encodings(encodings))
    return joined
