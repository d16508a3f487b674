"""Tokenizers that are backed by the Rust library `tokenizers`, which holds the vocabulary and uses all threads."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import tokenizers
from tokenizers import models, processors

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.files import write_atomically
from bert_jax.text.subword_tokenizer import EncodedSubwords, SubwordTokenizer, Template, sanitize_texts
from bert_jax.text.tokenizer import Special
from bert_jax.text.tokenizer_settings import TokenizerSettings

BERT_NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
# Templates of a text and of a pair, with special tokens, and with segments if these differ.
BERT_FORM = ("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
ROBERTA_FORM = ("{cls} $A {sep}", "{cls} $A {sep} {sep} $B {sep}")
RARE = "\U00010600"  # a letter of Linear A, which vocabularies lack
BATCH = 4096  # texts whose Rust encodings are in memory at once


class RustTokenizer(SubwordTokenizer):
    """Wraps a `tokenizers.Tokenizer` in the package's protocol.

    `names` maps the roles pad, unk, cls, sep and mask to the special tokens that fill them.
    """

    def __init__(
        self, rust: tokenizers.Tokenizer, names: dict[str, str], settings: TokenizerSettings | None = None
    ):
        rust.no_padding()
        rust.no_truncation()
        self.rust = rust
        self.names = names
        self.settings = settings or TokenizerSettings()
        self.settings.add_tokens(rust, names)
        ids = {role: i for role, name in names.items() if (i := rust.token_to_id(name)) is not None}
        missing = [name for role, name in names.items() if role not in ids]
        if missing:
            raise BertJaxError(
                f"the vocabulary lacks the special token{'s' * (len(missing) > 1)} {', '.join(missing)}; "
                "add them to it, or name the entries to use instead in special_tokens_map.json"
            )
        self.special = Special(**ids)
        try:
            rust.encode(RARE)
        except Exception as error:  # the Rust library raises bare Exception
            raise BertJaxError(
                f"the vocabulary has no entry for unknown characters ({first_line(error)}); set the model's unk_token "
                "or unk_id in tokenizer.json to an entry"
            ) from error
        if rust.post_processor is None:
            rust.post_processor = template_processor(names, ids)
        self.template = template_of(rust)
        self.size = max(rust.get_vocab(with_added_tokens=True).values()) + 1

    @classmethod
    def from_rust(cls, rust: tokenizers.Tokenizer, settings: TokenizerSettings | None = None) -> Self:
        settings = settings or TokenizerSettings()
        return cls(rust, choose_special_names(rust, settings), settings)

    @cached_property
    def fingerprint(self) -> str:
        parts = json.loads(self.rust.to_str())
        # Only the parts that decide ids; older files of the same tokenizer may have another decoder or post-processor.
        deciding = {key: parts[key] for key in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
        deciding["template"] = asdict(self.template)
        if isinstance(self.rust.model, models.Unigram):
            # JSON loses the last digit of a score.
            deciding["model"]["vocab"] = [
                (piece, round(score, 5)) for piece, score in parts["model"]["vocab"]
            ]
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()

    def _pieces(self, texts: list[str]) -> list[EncodedSubwords]:
        encoded = self._batches(self.rust.encode_batch, texts)
        return [(encoding.ids, encoding.offsets) for encoding in encoded]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [
            encoding.ids for encoding in self._batches(self.rust.encode_batch_fast, sanitize_texts(texts))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        self._check(ids)
        special = self.special.all
        return self.rust.decode([i for i in ids if i not in special], skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        self._check(ids)
        return [self.rust.id_to_token(i) or "" for i in ids]

    def _check(self, ids: Sequence[int]) -> None:
        for i in ids:
            if not isinstance(i, int | np.integer) or not 0 <= i < self.size:
                raise BertJaxError(f"id {i!r:.40} is outside the vocabulary of {self.size} entries")

    def save(self, directory) -> None:
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / "tokenizer.json", self.rust.to_str(pretty=True))
        self.settings.save(directory, self.names, self._transformers_class())

    def _transformers_class(self) -> dict:
        """Return the keys that say how `transformers` opens the files; PreTrainedTokenizerFast reads tokenizer.json
        unchanged."""
        inputs = self.settings.config.get("model_input_names")
        inputs = inputs or ["input_ids", "attention_mask"] + ["token_type_ids"] * self.template.second
        return {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}

    @staticmethod
    def _batches(encode, texts: list[str]):
        for start in range(0, len(texts), BATCH):
            yield from encode(texts[start : start + BATCH], add_special_tokens=False)


def bert_template(special: Special) -> Template:
    return Template((special.cls,), (special.sep,), (special.sep,), second=1)


def roberta_template(special: Special) -> Template:
    return Template((special.cls,), (special.sep, special.sep), (special.sep,), second=0)


def template_processor(
    names: dict[str, str], ids: dict[str, int], form: tuple[str, str] = BERT_FORM
) -> processors.TemplateProcessing:
    cls, sep = names["cls"], names["sep"]
    single, pair = (text.format(cls=cls, sep=sep) for text in form)
    special = [(cls, ids["cls"]), (sep, ids["sep"])]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)


def choose_special_names(rust: tokenizers.Tokenizer, settings: TokenizerSettings) -> dict[str, str]:
    """Return the names of the special tokens: those of the settings, else RoBERTa's if the vocabulary has all of them,
    else BERT's."""
    roberta = all(rust.token_to_id(name) is not None for name in ROBERTA_NAMES.values())
    names = ROBERTA_NAMES if roberta else BERT_NAMES
    if isinstance(rust.model, models.WordPiece):
        names = names | {"unk": rust.model.unk_token}  # MPNet's vocabulary has <unk>, too
    names = names | settings.names
    if isinstance(rust.model, models.BPE) and rust.token_to_id(names["unk"]) is None and reads_bytes(rust):
        names = names | {"unk": names["pad"]}  # no character is unknown
    return names


def reads_bytes(rust: tokenizers.Tokenizer) -> bool:
    """Whether rare characters become the bytes of their UTF-8 form."""
    return not rust.model.unk_token and bool(rust.encode(RARE, add_special_tokens=False).ids)


def template_of(rust: tokenizers.Tokenizer) -> Template:
    """Return the template that the post-processor applies, as read from an encoded pair."""
    pair = rust.encode("a", "a")
    sides, ids, token_type_ids = pair.sequence_ids, pair.ids, pair.type_ids
    first, second = sides.index(0), sides.index(1)
    middle = first + sides.count(0)
    suffix = second + sides.count(1)
    prefix, between, end = ids[:first], ids[middle:second], ids[suffix:]
    return Template(tuple(prefix), tuple(between), tuple(end), second=token_type_ids[second])
