"""The tokenizers of the package: they put special tokens around the subwords that the Rust library `tokenizers` finds,
which holds the vocabulary and uses all threads. Each kind of vocabulary has its own file in this folder."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from tokenizers import models, processors

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.files import write_atomically
from bert_jax.core.surrogates import replace_surrogates
from bert_jax.core.terminal import pluralize
from bert_jax.core.typed_json import type_name
from bert_jax.text.array_likes import to_plain_list, to_plain_value
from bert_jax.text.encoding import EncodedSubwords, Encoding, Template, Text
from bert_jax.text.tokenizer_settings import TokenizerSettings
from bert_jax.text.truncation import TRUNCATIONS, TruncationWarner

ENCODER_INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # the arrays [B, L] of every batch
Batch = dict[str, np.ndarray]
BERT_NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_NAMES = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
# Templates of a text and of a pair, with special tokens, and with segments if these differ.
BERT_FORM = ("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
ROBERTA_FORM = ("{cls} $A {sep}", "{cls} $A {sep} {sep} $B {sep}")
RARE = "\U00010600"  # a letter of Linear A, which vocabularies lack
BATCH = 4096  # texts whose Rust encodings are in memory at once


@dataclass(frozen=True)
class Special:
    """The ids of the special tokens, by BERT's names (RoBERTa's <s> is `cls`, its </s> is `sep`)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    @property
    def all(self) -> tuple[int, ...]:
        return (self.pad, self.unk, self.cls, self.sep, self.mask)


class Tokenizer:
    """Wraps a `tokenizers.Tokenizer`.

    `names` maps the roles pad, unk, cls, sep and mask to the special tokens that fill them. `size` is the highest id
    + 1, the least number of rows of an embedding table.
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
    def from_rust(cls, rust: tokenizers.Tokenizer, settings: TokenizerSettings) -> Self:
        return cls(rust, choose_special_names(rust, settings), settings)

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes if any text could get other ids."""
        parts = json.loads(self.rust.to_str())
        # Only the parts that decide ids; older files of the same tokenizer may have another decoder or post-processor.
        deciding = {key: parts[key] for key in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
        deciding["template"] = asdict(self.template)
        if isinstance(self.rust.model, models.Unigram):
            # JSON loses the last digit of a score.
            scores = parts["model"]["vocab"]
            deciding["model"]["vocab"] = [(piece, round(score, 5)) for piece, score in scores]
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return only the ids of texts, without special tokens; this is the fast path for preparing a corpus."""
        encoded = encode_in_batches(self.rust.encode_batch_fast, sanitize_texts(texts))
        return [encoding.ids for encoding in encoded]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        check_ids(ids, self.size)
        special = self.special.all
        return self.rust.decode([i for i in ids if i not in special], skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's entry for each id, special tokens included."""
        check_ids(ids, self.size)
        return [self.rust.id_to_token(i) or "" for i in ids]

    def save(self, directory) -> None:
        """Write the files from which this package and `transformers` open the same tokenizer."""
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

    def __repr__(self) -> str:
        t = self.template
        before, between, after = (" ".join(self.tokens(part)) for part in (t.prefix, t.middle, t.suffix))
        return f"<{type(self).__name__}: {self.size:,} entries, pairs as {before} a {between} b {after}>"

    def encode(
        self, texts: Sequence[Text], *, max_length: int | None = None, truncation: str = "longest_first"
    ) -> list[Encoding]:
        """Encode texts or pairs with their special tokens. In a pair, the longer text is truncated first; with
        truncation="only_first" the second one stays whole."""
        if max_length is not None:
            check_number(max_length, "max_length", is_whole=True)
        encodings = []
        for first, second in self._sides(texts):
            dropped = 0
            if max_length is not None:
                have = len(first[0]), len(second[0]) if second else 0
                keep = TRUNCATIONS[truncation](*have, self.template.room(max_length, second is not None))
                dropped = sum(have) - sum(keep)
                if dropped:
                    first = first[0][: keep[0]], first[1][: keep[0]]
                    second = second and (second[0][: keep[1]], second[1][: keep[1]])
            encodings.append(self.template.fill(first, second, dropped))
        return encodings

    def windows(self, texts: Sequence[Text], *, max_length: int, overlap: int) -> list[list[Encoding]]:
        """Encode each text in as many windows of `max_length` tokens as it needs; neighbours share `overlap` tokens.

        In a pair, the second text is divided into windows, and the whole first text comes before each of them.
        """
        check_number(max_length, "max_length", is_whole=True)
        check_number(overlap, "overlap", is_whole=True, allowed=Range(0))
        windows = []
        for text, (first, second) in zip(texts, self._sides(texts), strict=True):
            pair = second is not None
            ids, offsets = first if second is None else second
            room = self.template.room(max_length, pair) - (len(first[0]) if pair else 0)
            if room <= overlap:
                before = f' after "{text[0][:40]}"' if pair else ""
                raise BertJaxError(
                    f"a window of {max_length} tokens has room for only "
                    f"{pluralize(max(room, 0), 'token')}{before}, but neighbouring windows must share {overlap}; "
                    f"{'shorten the first text' if pair else 'lower the overlap'}"
                )
            starts = range(0, max(len(ids) - overlap, 1), room - overlap)
            cuts = [(ids[s : s + room], offsets[s : s + room]) for s in starts]
            fill = self.template.fill
            windows.append([fill(first, cut) if pair else fill(cut, None) for cut in cuts])
        return windows

    def _sides(self, texts: Sequence[Text]) -> list[tuple[EncodedSubwords, EncodedSubwords | None]]:
        check_listed(texts)
        for position, text in enumerate(texts):
            if not isinstance(text, str) and not (isinstance(text, tuple | list) and len(text) == 2):
                raise BertJaxError(
                    f"text {position} is {type_name(text)}, not a text or a pair: {text!r:.60}"
                )
        flat = [side for text in texts for side in ((text,) if isinstance(text, str) else text)]
        encoded = encode_in_batches(self.rust.encode_batch, sanitize_texts(flat))
        pieces = ((encoding.ids, encoding.offsets) for encoding in encoded)
        return [(next(pieces), None if isinstance(text, str) else next(pieces)) for text in texts]

    def pad(self, encodings: Sequence[Encoding], length: int | None = None) -> Batch:
        """Return the batch [B, L] of the encodings; L is `length`, by default the length of the longest."""
        longest = max((len(encoding.input_ids) for encoding in encodings), default=0)
        length = longest if length is None else length
        check_number(length, "length", is_whole=True)
        if length < longest:
            raise BertJaxError(
                f"length is {length}, but a text has {longest} tokens; set max_length={length} to truncate it"
            )
        batch = {name: np.zeros((len(encodings), length), np.int32) for name in ENCODER_INPUTS}
        batch["input_ids"][:] = self.special.pad
        for row, encoding in enumerate(encodings):
            values: list[Any] = [encoding.input_ids, encoding.token_type_ids, 1]
            for name, value in zip(ENCODER_INPUTS, values, strict=True):
                batch[name][row, : len(encoding.input_ids)] = value
        return batch

    def __call__(self, texts, *, max_length: int | None = None, length: int | None = None) -> Batch:
        """Return input_ids, token_type_ids and attention_mask: [L] for one text or pair, [B, L] for a list.

        Texts of more than `max_length` tokens are truncated, with a warning. L is `length`, by default that of the
        longest.
        """
        single = isinstance(texts, str | tuple)
        encodings = self.encode([texts] if single else to_plain_list(texts), max_length=max_length)
        if max_length is not None:
            TruncationWarner(max_length).count(encodings)
        batch = self.pad(encodings, length)
        return {name: array[0] for name, array in batch.items()} if single else batch

    def batches(self, texts: Iterable, rows: int, **settings) -> Iterator[Batch]:
        """Yield batches of `rows` texts in their order, read lazily. `settings` are the keywords of a call."""
        check_number(rows, "rows", is_whole=True, allowed=Range(1))
        if isinstance(texts, str):
            raise BertJaxError(
                f'batches reads a list of texts, but "{texts[:40]}" is a single text; give a list'
            )
        texts = map(to_plain_value, to_plain_list(texts))
        while chunk := list(islice(texts, rows)):
            yield self(chunk, **settings)


def check_ids(ids: Sequence[int], size: int) -> None:
    for i in ids:
        if not isinstance(i, int | np.integer) or not 0 <= i < size:
            raise BertJaxError(f"id {i!r:.40} is outside the vocabulary of {size} entries")


def encode_in_batches(encode, texts: list[str]) -> Iterator[tokenizers.Encoding]:
    for start in range(0, len(texts), BATCH):
        yield from encode(texts[start : start + BATCH], add_special_tokens=False)


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


def check_listed(texts) -> None:
    if isinstance(texts, str):
        raise BertJaxError("expected a list of texts, got one string; write [text]")
    if not isinstance(texts, Sequence) or isinstance(texts, bytes | bytearray):
        raise BertJaxError(f"expected a list of texts, got {type_name(texts)}")


def sanitize_texts(texts: Sequence[str]) -> list[str]:
    """Replace lone surrogates, which a UTF-8 library refuses, with U+FFFD, one for one, so offsets stay valid."""
    check_listed(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise BertJaxError(f"text {position} is {type_name(text)}, not a string: {text!r:.60}")
    return [replace_surrogates(text) for text in texts]
