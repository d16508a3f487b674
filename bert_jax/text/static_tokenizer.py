"""The tokenizer of static embeddings: no special tokens, texts cut by characters first, unknown tokens left out."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import models

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically, write_json
from bert_jax.text.encoding import EncodedSubwords, Encoding, Template, Text
from bert_jax.text.tokenizer import Special, Tokenizer, sanitize_texts
from bert_jax.text.tokenizer_settings import TokenizerSettings
from bert_jax.text.word_cache import cached

KEEPS_UNKNOWN = "keeps_unknown"  # our key in tokenizer_config.json
PADDING = ("[PAD]", "<pad>")


class StaticTokenizer(Tokenizer):
    """Reads texts as model2vec does or, if it keeps unknown tokens, as sentence-transformers' StaticEmbedding does."""

    def __init__(self, rust: tokenizers.Tokenizer, keeps_unknown: bool, unknown: int | None = None):
        rust.no_padding()
        self.truncation = rust.truncation  # written again, because sentence-transformers heeds it
        rust.no_truncation()
        self.rust, self.keeps_unknown, self.settings = rust, keeps_unknown, TokenizerSettings()
        self.words = cached(self)
        pad = next((i for name in PADDING if (i := rust.token_to_id(name)) is not None), 0)
        self.special = Special(pad, pad if unknown is None else unknown, pad, pad, pad)
        self.names = dict.fromkeys(("pad", "unk", "cls", "sep", "mask"), rust.id_to_token(pad) or "")
        self.template = StaticTemplate((), (), (), 0, None if keeps_unknown else unknown)
        vocabulary = rust.get_vocab(with_added_tokens=True)
        self.size = max(vocabulary.values()) + 1
        self.token_length = int(np.median([len(token) for token in vocabulary]))  # in characters

    @classmethod
    def from_directory(
        cls, directory: Path, settings: TokenizerSettings, keeps_unknown: bool = False
    ) -> "StaticTokenizer":
        """Open the tokenizer; if it is ours, it says itself what becomes of unknown tokens."""
        path = directory / "tokenizer.json"
        try:
            content = path.read_text(encoding="utf-8")
            rust = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the Rust library raises bare Exception
            raise BertJaxError(f"{path}: not a tokenizer.json ({error}); fetch the file again") from error
        keeps_unknown = bool(settings.config.get(KEEPS_UNKNOWN, keeps_unknown))
        return cls(rust, keeps_unknown, unknown_id(rust, content))

    @staticmethod
    def saved_in(settings: TokenizerSettings) -> bool:
        return KEEPS_UNKNOWN in settings.config

    def save(self, directory) -> None:
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if self.truncation:
            self.rust.enable_truncation(**self.truncation)
        write_atomically(directory / "tokenizer.json", self.rust.to_str())
        self.rust.no_truncation()
        write_json(directory / "tokenizer_config.json", {KEEPS_UNKNOWN: self.keeps_unknown})

    def encode(
        self, texts: Sequence[Text], *, max_length: int | None = None, truncation: str = "longest_first"
    ) -> list[Encoding]:
        """Encode texts or pairs. With `max_length`, single texts have no offsets, which would take a fifth longer, and
        are first cut to as many characters as so many tokens of the median length have, if model2vec is followed. How
        many tokens were cut off so is an estimate."""
        if max_length is None or not all(isinstance(text, str) for text in texts):
            return super().encode(texts, max_length=max_length, truncation=truncation)
        check_number(max_length, "max_length", is_whole=True, allowed=Range(1))
        most = sys.maxsize if self.keeps_unknown else max_length * self.token_length
        whole, encodings = sanitize_texts([text for text in texts if isinstance(text, str)]), []
        cut = [text[:most] for text in whole]
        for text, ids in zip(whole, self.words.ids(cut), strict=True):
            dropped = max(len(text) - most, 0)
            if dropped or len(ids) > max_length:
                dropped = -(-dropped // self.token_length) + max(len(ids) - max_length, 0)
                ids = ids[:max_length]
            encodings.append(self.template.fill((ids, []), None, dropped))
        return encodings


@dataclass(frozen=True)
class StaticTemplate(Template):
    """Without special tokens; the token `unknown` is left out."""

    unknown: int | None

    def fill(self, first: EncodedSubwords, second: EncodedSubwords | None, dropped: int = 0) -> Encoding:
        ids, offsets = first
        if second is not None:
            ids, offsets = ids + second[0], offsets + second[1]
        if self.unknown in ids:
            kept = [n for n, i in enumerate(ids) if i != self.unknown]
            ids, offsets = [ids[n] for n in kept], [offsets[n] for n in kept if offsets]
        return Encoding(ids, [0] * len(ids), offsets, dropped, (range(len(ids)),))


def unknown_id(rust: tokenizers.Tokenizer, content: str) -> int | None:
    """Return the id of the token for what is not in the vocabulary, if there is one."""
    if isinstance(rust.model, models.Unigram):  # the library does not tell it
        number = re.search(r'"unk_id":\s*(\d+)', content)
        return int(number[1]) if number else None
    return None if rust.model.unk_token is None else rust.token_to_id(rust.model.unk_token)
